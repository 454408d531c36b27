-- One row per letter. The document is the letter; the columns beside it are copies of what is asked for.
CREATE TABLE letter (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, -- never given twice: cursors rely on it
    id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    class TEXT NOT NULL,
    operation TEXT NOT NULL,
    sender TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    stored INTEGER NOT NULL,               -- times in milliseconds since 1970
    due INTEGER NOT NULL,
    lease_until INTEGER,
    asks_until INTEGER,
    settled INTEGER,
    document TEXT NOT NULL
) STRICT;

-- All that lists, leases and counts ask: they read a document only when they want it.
CREATE INDEX letter_facts ON letter
    (state, seq, due, lease_until, asks_until, stored, class, operation, sender, fingerprint);

-- For retention by age.
CREATE INDEX letter_settled ON letter (settled) WHERE settled IS NOT NULL;

CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO counter VALUES ('dropped', 0);   -- by retention, while open or parked

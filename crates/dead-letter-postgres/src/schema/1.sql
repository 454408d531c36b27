-- One row per letter. `letter` is the whole of it, as JSON; the other columns are what queries look
-- at. Moments are milliseconds since 1970.
--
-- `letter` is text and not jsonb, because jsonb cannot hold U+0000, which the text of an error may.
-- The same goes for the text columns: there U+0000 is written as U+0001 and the digit 0, U+0001 as
-- U+0001 and the digit 1.
CREATE TABLE tower_triage_letter (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    -- Goes up with each change, so that a change made from an old reading is noticed.
    version bigint NOT NULL DEFAULT 1,
    state text NOT NULL,
    stored bigint NOT NULL,
    due bigint NOT NULL,
    leased_until bigint,
    asks_until bigint,
    settled bigint,
    class text NOT NULL,
    operation text NOT NULL,
    sender text NOT NULL,
    receivers text NOT NULL,
    fingerprint text NOT NULL,
    letter text NOT NULL
);

CREATE INDEX tower_triage_letter_open ON tower_triage_letter (seq) WHERE state = 'open';

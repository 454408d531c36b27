//! Where in a text a secret stands, by its shape or by the name in front of it. Pure.

use std::cell::Cell;
use std::ops::Range;

use super::REDACTED;
use super::names::Secrecy;

/// Longer names are none.
const NAME: usize = 64;
/// Longer hosts are none.
const HOST: usize = 512;

/// What stands behind "bearer" in a sentence or a challenge, in place of a token.
const PROSE: [&str; 10] = [
    "token",
    "tokens",
    "auth",
    "authentication",
    "authorization",
    "realm",
    "error",
    "scheme",
    "header",
    "credentials",
];

/// The prefix of an issuer's credentials, the characters that go on, and at least how many.
type Issuer = (&'static str, fn(u8) -> bool, usize);

/// How the credentials of well-known issuers begin, which characters go on, and at least how many.
const ISSUERS: [Issuer; 25] = [
    ("sk_live_", is_alphanumeric, 16),
    ("sk_test_", is_alphanumeric, 16),
    ("rk_live_", is_alphanumeric, 16),
    ("rk_test_", is_alphanumeric, 16),
    ("whsec_", is_base64, 16),
    ("ghp_", is_alphanumeric, 16),
    ("gho_", is_alphanumeric, 16),
    ("ghu_", is_alphanumeric, 16),
    ("ghs_", is_alphanumeric, 16),
    ("ghr_", is_alphanumeric, 16),
    ("github_pat_", is_base64url, 20),
    ("glpat-", is_base64url, 16),
    ("xoxa-", is_base64url, 10),
    ("xoxb-", is_base64url, 10),
    ("xoxe-", is_base64url, 10),
    ("xoxp-", is_base64url, 10),
    ("xoxr-", is_base64url, 10),
    ("xoxs-", is_base64url, 10),
    ("xapp-", is_base64url, 10),
    ("AIza", is_base64url, 30),
    ("ya29.", is_base64url, 16),
    ("SG.", is_dotted, 40),
    ("hf_", is_alphanumeric, 20),
    ("npm_", is_alphanumeric, 30),
    ("pypi-", is_base64url, 40),
];

const fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

const fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}

const fn is_base64url(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

const fn is_dotted(byte: u8) -> bool {
    is_base64url(byte) || byte == b'.'
}

/// RFC 9110, section 11.2: `token68`.
const fn is_token68(byte: u8) -> bool {
    is_base64url(byte) || matches!(byte, b'.' | b'~' | b'+' | b'/' | b'=')
}

const fn is_name(byte: u8) -> bool {
    is_base64url(byte) || byte == b'.'
}

const fn is_upper(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

/// A text with the classifier of names. Whatever the text is, looking through it takes a time that
/// grows with its length and no faster: what is looked ahead is bounded, or consumed, or remembered.
pub(super) struct Text<'a, F> {
    text: &'a str,
    name: F,
    /// Up to there no `sk-` begins a key.
    no_sk: Cell<usize>,
    /// Up to there no `eyJ` begins a token.
    no_jwt: Cell<usize>,
}

impl<'a, F: Fn(&str) -> Secrecy> Text<'a, F> {
    pub(super) const fn new(text: &'a str, name: F) -> Self {
        Self { text, name, no_sk: Cell::new(0), no_jwt: Cell::new(0) }
    }

    /// The first secret that begins at `from` or behind it.
    pub(super) fn next(&self, from: usize) -> Option<Range<usize>> {
        (from..self.text.len()).find_map(|at| self.user_info(at).or_else(|| self.word(at)))
    }

    fn word(&self, at: usize) -> Option<Range<usize>> {
        if !self.begins_word(at) {
            return None;
        }
        self.private_key(at)
            .or_else(|| self.credentials(at))
            .or_else(|| self.issued(at))
            .or_else(|| self.assigned(at))
    }

    fn bytes(&self) -> &[u8] {
        self.text.as_bytes()
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.bytes().get(at).copied()
    }

    fn starts_with(&self, at: usize, head: &str) -> bool {
        self.bytes()[at..].starts_with(head.as_bytes())
    }

    fn starts_with_ignore_case(&self, at: usize, head: &str) -> bool {
        let part = self.bytes().get(at..at + head.len());
        part.is_some_and(|part| part.eq_ignore_ascii_case(head.as_bytes()))
    }

    /// The end of a run of such bytes.
    fn run(&self, at: usize, is: impl Fn(u8) -> bool) -> usize {
        let run = self.bytes()[at..].iter().position(|byte| !is(*byte));
        run.map_or(self.text.len(), |length| at + length)
    }

    /// The end of a run of at most so many such bytes.
    fn short_run(&self, at: usize, most: usize, is: impl Fn(u8) -> bool) -> usize {
        let end = self.text.len().min(at + most);
        at + self.bytes()[at..end].iter().take_while(|byte| is(**byte)).count()
    }

    fn line_end(&self, at: usize) -> usize {
        self.run(at, |byte| !matches!(byte, b'\n' | b'\r'))
    }

    /// A word also begins behind an escape: `%3D`, `\n`, `\u003d`.
    fn begins_word(&self, at: usize) -> bool {
        let before = &self.bytes()[..at];
        let Some(last) = before.last() else { return true };
        let is_hex = |digits: &[u8]| digits.iter().all(u8::is_ascii_hexdigit);
        match before {
            _ if !last.is_ascii_alphanumeric() && *last != b'_' => true,
            [.., b'%', a, b] => is_hex(&[*a, *b]),
            [.., b'\\', b'n' | b'r' | b't'] => true,
            [.., b'\\', b'u', a, b, c, d] => is_hex(&[*a, *b, *c, *d]),
            _ => false,
        }
    }

    /// `scheme://user:password@host`: what stands before the `@`.
    fn user_info(&self, at: usize) -> Option<Range<usize>> {
        if !self.starts_with(at, "://") {
            return None;
        }
        let start = at + 3;
        let in_word = |byte: u8| !byte.is_ascii_whitespace() && !b"\"'`<>\\".contains(&byte);
        let in_host = |byte: u8| in_word(byte) && !b"/?#".contains(&byte);
        let host = &self.bytes()[start..self.short_run(start, HOST, in_host)];
        // A password may hold what ends a host. Then what stands behind the colon is no port.
        let port = host.iter().position(|byte| *byte == b':').map(|colon| &host[colon + 1..]);
        let cut =
            !host.contains(&b'@') && port.is_some_and(|port| !port.iter().all(u8::is_ascii_digit));
        let end = if cut { self.short_run(start, HOST, in_word) } else { start + host.len() };
        let user_info = self.bytes()[start..end].iter().rposition(|byte| *byte == b'@')?;
        self.secret(start..start + user_info)
    }

    fn private_key(&self, at: usize) -> Option<Range<usize>> {
        if !self.starts_with(at, "-----BEGIN ") {
            return None;
        }
        let start = at + 11;
        let kind_end = self.short_run(start, NAME, |byte| is_upper(byte) || byte == b' ');
        if !self.bytes()[start..kind_end].ends_with(b"PRIVATE KEY") {
            return None;
        }
        let end = self.text[start..].find("-----END ").map(|length| start + length + 9);
        let end = end.and_then(|end| self.text[end..].find("-----").map(|length| end + length + 5));
        self.secret(at..end.unwrap_or(self.text.len()))
    }

    /// `Bearer ..`, `Basic ..`: what stands behind the scheme.
    fn credentials(&self, at: usize) -> Option<Range<usize>> {
        let basic = self.starts_with_ignore_case(at, "basic");
        let bearer = self.starts_with_ignore_case(at, "bearer");
        if !basic && !bearer {
            return None;
        }
        let gap = at + if basic { 5 } else { 6 };
        let start = self.run(gap, |byte| matches!(byte, b' ' | b'+'));
        let start = if self.starts_with(start, "%20") { start + 3 } else { start };
        if start == gap || basic && !is_mixed(&self.text[start..]) {
            return None;
        }
        let end = self.run(start, is_token68);
        let word = self.text[start..end].trim_end_matches(['.', '=']);
        // Words of a sentence: "the bearer token has expired".
        let is_prose = PROSE.iter().any(|prose| word.eq_ignore_ascii_case(prose));
        if word.len() < 4 || is_prose { None } else { self.secret(start..end) }
    }

    /// What carries its issuer's prefix, and JSON web tokens.
    fn issued(&self, at: usize) -> Option<Range<usize>> {
        let is_known = |(head, goes_on, least): &Issuer| {
            let end = self.starts_with(at, head).then(|| self.run(at + head.len(), goes_on))?;
            (end - at >= head.len() + least).then_some(end)
        };
        let known = ISSUERS.iter().find_map(is_known);
        let end =
            known.or_else(|| self.sk(at)).or_else(|| self.aws(at)).or_else(|| self.jwt(at))?;
        self.secret(at..end)
    }

    /// `sk-` begins ordinary words too.
    fn sk(&self, at: usize) -> Option<usize> {
        if at < self.no_sk.get() || !self.starts_with(at, "sk-") {
            return None;
        }
        let end = self.run(at + 3, is_base64url);
        let key = &self.bytes()[at + 3..end];
        if !key.iter().any(u8::is_ascii_digit) {
            self.no_sk.set(end);
            return None;
        }
        (key.len() >= 16).then_some(end)
    }

    fn aws(&self, at: usize) -> Option<usize> {
        let known = ["AKIA", "ASIA"].iter().any(|head| self.starts_with(at, head));
        let end = known.then(|| self.run(at, is_upper))?;
        let whole = !self.byte(end).is_some_and(|byte| byte.is_ascii_alphanumeric());
        (end - at >= 20 && whole).then_some(end)
    }

    /// Three parts or more of base64url, the first of which is a JSON object (RFC 7519).
    fn jwt(&self, at: usize) -> Option<usize> {
        if at < self.no_jwt.get() || !self.starts_with(at, "eyJ") {
            return None;
        }
        let header = self.run(at, is_base64url);
        let end = self.run(header, is_dotted);
        if self.bytes()[header..end].iter().filter(|byte| **byte == b'.').count() < 2 {
            self.no_jwt.set(end);
            return None;
        }
        (header - at >= 10).then_some(end)
    }

    /// A value behind a name that says it is a secret: in a query, a form, a connection string,
    /// JSON, headers, XML.
    fn assigned(&self, at: usize) -> Option<Range<usize>> {
        let name_end = self.short_run(at, NAME + 1, is_name);
        if name_end == at || name_end - at > NAME {
            return None;
        }
        let mut value = self.run(name_end, |byte| b"\"'`\\]".contains(&byte));
        let quoted_name = value > name_end;
        for escape in ["%5D", "%5d", "%22"] {
            value += if self.starts_with(value, escape) { 3 } else { 0 };
        }
        value = self.run(value, |byte| byte == b' ');
        let in_tag = at > 0 && self.byte(at - 1) == Some(b'<') && value == name_end;
        let colon = match (self.byte(value)?, self.byte(value + 1)) {
            (b'>', _) if in_tag => {
                let end = self.run(value + 1, |byte| byte != b'<');
                let name = (self.name)(&self.text[at..name_end]);
                return (name != Secrecy::Plain).then(|| self.secret(value + 1..end)).flatten();
            }
            (b'=', Some(b'=')) | (b':', Some(b':')) => return None,
            (b'=', Some(b'>')) => {
                value += 2;
                false
            }
            (b'=', _) => {
                value += 1;
                false
            }
            (b':', _) => {
                value += 1;
                true
            }
            (b'%', _) if self.starts_with_ignore_case(value, "%3D") => {
                value += 3;
                false
            }
            _ => return None,
        };
        let kind = (self.name)(&self.text[at..name_end]);
        if kind == Secrecy::Plain {
            return None;
        }
        value = self.run(value, |byte| byte == b' ');
        value += if self.starts_with(value, "Some(") { 5 } else { 0 };
        let unquoted_line = colon && !quoted_name;
        // "unexpected token: `x`" is a sentence.
        if unquoted_line && kind == Secrecy::Weak && !is_mixed(&self.text[value..]) {
            return None;
        }
        self.value(value, unquoted_line && kind == Secrecy::Strong)
            .and_then(|range| self.secret(range))
    }

    /// The value that begins at `at`; one without quotes may go on to the end of its line.
    fn value(&self, at: usize, line: bool) -> Option<Range<usize>> {
        let quote_at = self.run(at, |byte| byte == b'\\');
        let escapes = quote_at - at;
        match self.byte(quote_at)? {
            quote @ (b'"' | b'\'' | b'`') => {
                let start = quote_at + 1;
                Some(start..self.quoted_end(start, quote, escapes))
            }
            // A structure, or `authorization: Scheme ..` and `cookie: a=b; c=d`.
            b'{' | b'[' if !self.starts_with(at, REDACTED) => Some(at..self.line_end(at)),
            _ if line => Some(at..self.line_end(at)),
            _ => {
                let ends =
                    |byte: u8| byte.is_ascii_whitespace() || b"&,;\"'`<>(){}|\\".contains(&byte);
                let end = self.run(at, |byte| !ends(byte));
                let scheme = &self.text[at..end];
                let is_scheme = ["bearer", "basic", "digest", "token", "negotiate"]
                    .iter()
                    .any(|known| scheme.eq_ignore_ascii_case(known));
                if is_scheme && self.byte(end) == Some(b' ') {
                    return Some(end + 1..self.run(end + 1, |byte| !ends(byte)));
                }
                Some(at..end)
            }
        }
    }

    /// Where the text ends that began behind a quote with so many backslashes in front of it: JSON
    /// in a string of JSON has one, or three.
    fn quoted_end(&self, start: usize, quote: u8, escapes: usize) -> usize {
        let mut at = start;
        while let Some(byte) = self.byte(at) {
            if byte == b'\\' {
                let end = self.run(at, |byte| byte == b'\\');
                if end - at == escapes && self.byte(end) == Some(quote) {
                    return at;
                }
                // What is escaped more often belongs to the value.
                at = end + usize::from(self.byte(end) == Some(quote));
            } else if byte == quote && escapes == 0 {
                return at;
            } else {
                at += 1;
            }
        }
        self.text.len()
    }

    /// Unless it is taken out already, or says nothing.
    fn secret(&self, range: Range<usize>) -> Option<Range<usize>> {
        let plain = ["", REDACTED, "true", "false", "null", "None"];
        (!plain.contains(&&self.text[range.clone()])).then_some(range)
    }
}

/// Does its first word look made by a machine: with digits, or with capitals inside?
fn is_mixed(text: &str) -> bool {
    let text = &text.as_bytes()[..text.len().min(NAME)];
    let start = text.iter().take_while(|byte| b"\"'\\".contains(byte)).count();
    let word = text[start..].iter().take_while(|byte| is_token68(**byte)).copied();
    let mixed = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_uppercase();
    word.clone().count() >= 8
        && (word.clone().any(|byte| byte.is_ascii_digit()) || word.skip(1).any(mixed))
}

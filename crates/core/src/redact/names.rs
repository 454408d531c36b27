//! Which names stand for a secret.

/// What a name says of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secrecy {
    /// Nothing.
    Plain,
    /// It is a secret if it is a text or a number: `token`, `signature`.
    Weak,
    /// It is a secret, whatever it is: `password`, `credentials`.
    Strong,
}

/// Anywhere in a name.
const STRONG: [&str; 20] = [
    "password",
    "passwd",
    "pwd",
    "passphrase",
    "passcode",
    "secret",
    "secrets",
    "clientsecret",
    "authorization",
    "cookie",
    "cookies",
    "credential",
    "credentials",
    "api_key",
    "apikey",
    "private_key",
    "privatekey",
    "access_key",
    "accesskey",
    "secretkey",
];

/// At the end of a name: `max_token_count` is none.
const WEAK: [&str; 15] = [
    "token",
    "accesstoken",
    "authtoken",
    "refreshtoken",
    "idtoken",
    "bearer",
    "jwt",
    "auth",
    "sig",
    "signature",
    "session",
    "session_id",
    "sessionid",
    "otp",
    "signing_key",
];

/// Tokens that say where to go on, not who asks.
const PLACES: [&str; 4] = ["page_token", "next_token", "continuation_token", "cancellation_token"];

/// `name` in lower case, its words joined by `_`, and one at each end: `X-Api-Key`, `xApiKey` and
/// `x_api_key` are `_x_api_key_`.
pub(super) fn normal(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    out.push('_');
    let mut chars = name.chars().peekable();
    let mut before = '_';
    while let Some(c) = chars.next() {
        let ends_acronym =
            before.is_uppercase() && chars.peek().is_some_and(|next| next.is_lowercase());
        let begins_word = c.is_uppercase() && (!before.is_uppercase() || ends_acronym);
        if (!c.is_alphanumeric() || begins_word) && !out.ends_with('_') {
            out.push('_');
        }
        if c.is_alphanumeric() {
            out.extend(c.to_lowercase());
        }
        before = c;
    }
    if !out.ends_with('_') {
        out.push('_');
    }
    out
}

/// What the [`normal`] form of a name says.
pub(super) fn name(normal: &str) -> Secrecy {
    let has_word = |word: &str| {
        normal.match_indices(word).any(|(at, _)| {
            let end = at + word.len();
            normal[..at].ends_with('_') && normal[end..].starts_with('_')
        })
    };
    let ends_with = |words: &str| {
        let head = normal.strip_suffix('_').and_then(|normal| normal.strip_suffix(words));
        head.is_some_and(|head| head.ends_with('_'))
    };
    if STRONG.iter().any(|word| has_word(word)) {
        Secrecy::Strong
    } else if WEAK.iter().any(|words| ends_with(words))
        && !PLACES.iter().any(|words| ends_with(words))
    {
        Secrecy::Weak
    } else {
        Secrecy::Plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_by_their_words() {
        for (written, words) in [
            ("X-Api-Key", "_x_api_key_"),
            ("xApiKey", "_x_api_key_"),
            ("API_KEY", "_api_key_"),
            ("APIKey", "_api_key_"),
            ("user[password]", "_user_password_"),
            ("a..b", "_a_b_"),
            ("", "_"),
            ("Schlüssel", "_schlüssel_"),
        ] {
            assert_eq!(normal(written), words, "{written}");
        }
    }

    #[test]
    fn a_secret_is_a_whole_word() {
        for (name_of, says) in [
            ("password", Secrecy::Strong),
            ("user_password_hash", Secrecy::Strong),
            ("Proxy-Authorization", Secrecy::Strong),
            ("Set-Cookie", Secrecy::Strong),
            ("clientSecret", Secrecy::Strong),
            ("x-amz-security-token", Secrecy::Weak),
            ("X-Amz-Signature", Secrecy::Weak),
            ("accessToken", Secrecy::Weak),
            ("sessionId", Secrecy::Weak),
            ("max_tokens", Secrecy::Plain),
            ("token_type", Secrecy::Plain),
            ("page_token", Secrecy::Plain),
            ("nextPageToken", Secrecy::Plain),
            ("secretary", Secrecy::Plain),
            ("cookies_n_cream", Secrecy::Strong),
            ("compass", Secrecy::Plain),
            ("key", Secrecy::Plain),
            ("author", Secrecy::Plain),
            ("", Secrecy::Plain),
        ] {
            assert_eq!(name(&normal(name_of)), says, "{name_of}");
        }
    }
}

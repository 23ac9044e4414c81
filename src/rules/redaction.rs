//! What of a receiver's answer may be kept and shown: the text without what looks like a secret.
//!
//! One pass from left to right, so the time is linear whatever a receiver sends. It knows no format: answers are
//! cut off anywhere, and JSON, forms, headers and XML come mixed. Where in doubt it hides too much.

/// What stands in the place of a secret.
const HIDDEN: &str = "[redacted]";

/// Names whose values are hidden; longer names that hold one of them as well (`access_token`, `Set-Cookie`).
const NAMES: [&str; 14] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "api_key",
    "api-key",
    "authorization",
    "credential",
    "cookie",
    "private_key",
    "signature",
    "session",
];

/// Beginnings of secrets that need no name: signing keys, JSON Web Tokens, and keys of well-known issuers.
const MARKS: [&str; 10] = [
    "whsec_",
    "whsk_",
    "eyJ",
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "ghp_",
    "github_pat_",
    "xoxb-",
    "AKIA",
];

/// Shortest rest of a marked secret.
const MIN_MARKED: usize = 8;
/// Shortest credential after `Bearer` or `Basic`.
const MIN_CREDENTIAL: usize = 4;
/// Most names that a setting may add, and their longest.
const MAX_NAMES: usize = 100;
const MAX_NAME: usize = 64;

/// Further names whose values are hidden, as a setting writes them: separated by commas. The error says why not.
pub fn parse_names(text: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for name in text
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
    {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.len() < 2 || name.len() > MAX_NAME || !name.chars().all(plain) {
            return Err(format!(
                "A name has 2 to {MAX_NAME} characters of A-Z, a-z, 0-9, \"_\" and \"-\"; \"{name}\" is none."
            ));
        }
        names.push(name.to_ascii_lowercase());
    }
    if names.len() > MAX_NAMES {
        return Err(format!(
            "There are {} names; the limit is {MAX_NAMES}.",
            names.len()
        ));
    }
    Ok(names)
}

/// The text without control characters and without what looks like a secret; `more` are further names, in lower case.
pub fn redact(text: &str, more: &[String]) -> String {
    let bytes = text.as_bytes();
    let mut kept = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        if let Some(hidden) = named(bytes, at, more)
            .or_else(|| marked(bytes, at))
            .or_else(|| credential(bytes, at))
        {
            push_plain(&mut kept, &text[at..hidden.from]);
            if hidden.quoted {
                kept.push('"');
            }
            kept.push_str(HIDDEN);
            if hidden.quoted {
                kept.push('"');
            }
            at = hidden.to;
            continue;
        }
        let end = next_boundary(text, at);
        push_plain(&mut kept, &text[at..end]);
        at = end;
    }
    kept
}

/// A secret: the text from `from` to `to` is replaced; both are boundaries of characters.
struct Found {
    from: usize,
    to: usize,
    quoted: bool,
}

/// `"password": "x"`, `api_key=x`, `Cookie: x`, `<token>x</token>`, also inside a quoted JSON text.
fn named(bytes: &[u8], at: usize, more: &[String]) -> Option<Found> {
    let rest = &bytes[at..];
    let begins = |name: &&str| {
        rest.get(..name.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(name.as_bytes()))
    };
    let name = NAMES
        .iter()
        .copied()
        .chain(more.iter().map(String::as_str))
        .filter(begins)
        .max_by_key(|name| name.len())?;
    let mut end = at + name.len();
    // Bounded: a long word that is all names would be looked through again for each of them.
    end = skip_some(bytes, end, |b| {
        b.is_ascii_alphanumeric() || b == b'_' || b == b'-'
    });
    end = skip_some(bytes, end, |b| matches!(b, b'\\' | b'"' | b'\'' | b']'));
    end = skip_some(bytes, end, |b| b.is_ascii_whitespace());
    let separator = *bytes.get(end)?;
    if !matches!(separator, b':' | b'=' | b'>') {
        return None;
    }
    // "=>", as some print maps, and "==".
    end = skip(bytes, end, |b| matches!(b, b':' | b'=' | b'>'));
    let from = skip(bytes, end, |b| {
        b == b' ' || b == b'\t' || (separator == b':' && b.is_ascii_whitespace())
    });
    let line = matches!(name, "authorization" | "cookie");
    // A value of two words: "token: Bearer x".
    let scheme = credential(bytes, from).map_or(from, |found| found.to);
    let to = value_end(bytes, from, separator == b'>', line).max(scheme);
    (to > from).then_some(Found {
        from,
        to,
        quoted: true,
    })
}

/// Where the value ends that begins at `from`.
fn value_end(bytes: &[u8], from: usize, element: bool, line: bool) -> usize {
    let opened = skip(bytes, from, |b| b == b'\\');
    match bytes.get(opened) {
        Some(quote @ (b'"' | b'\'')) => quoted_end(bytes, opened + 1, *quote, opened > from),
        Some(b'[' | b'{') => nested_end(bytes, opened),
        _ if element => skip(bytes, from, |b| b != b'<'),
        // A header may hold several: to the end of the line.
        _ if line => skip(bytes, from, |b| !matches!(b, b'\r' | b'\n' | b'"' | b'<')),
        _ => skip(bytes, from, |b| {
            !(b.is_ascii_whitespace()
                || matches!(b, b',' | b';' | b'&' | b'"' | b'{' | b'}' | b']' | b'<'))
        }),
    }
}

/// Behind the closing quote, or the end of the text when it was cut off. Inside a quoted JSON text, quotes are escaped.
fn quoted_end(bytes: &[u8], from: usize, quote: u8, escaped: bool) -> usize {
    let mut at = from;
    while let Some(&byte) = bytes.get(at) {
        if byte == quote {
            return at + 1;
        }
        // An escape takes the next byte with it; where quotes themselves are escaped, the next quote is the end.
        at += if byte == b'\\' && !escaped { 2 } else { 1 };
    }
    bytes.len()
}

/// Behind the bracket that closes the one at `from`; brackets in texts count as well, which hides too much at worst.
fn nested_end(bytes: &[u8], from: usize) -> usize {
    let mut depth = 0_usize;
    for (offset, byte) in bytes[from..].iter().enumerate() {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => {
                depth -= 1;
                if depth == 0 {
                    return from + offset + 1;
                }
            }
            _ => {}
        }
    }
    bytes.len()
}

/// A secret that its own beginning gives away.
fn marked(bytes: &[u8], at: usize) -> Option<Found> {
    let mark = MARKS
        .iter()
        .find(|mark| bytes[at..].starts_with(mark.as_bytes()))?;
    let to = skip(bytes, at + mark.len(), of_token);
    (to - at - mark.len() >= MIN_MARKED).then_some(Found {
        from: at,
        to,
        quoted: false,
    })
}

/// `Bearer x` and `Basic x`, wherever they stand.
fn credential(bytes: &[u8], at: usize) -> Option<Found> {
    if at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_') {
        return None;
    }
    let once = past_scheme(bytes, at)?;
    // "Bearer Bearer x" is a common slip. Once only: a text full of the word must not be read again for each.
    let from = past_scheme(bytes, once).unwrap_or(once);
    let to = skip(bytes, from, of_token);
    (to - from >= MIN_CREDENTIAL).then_some(Found {
        from,
        to,
        quoted: false,
    })
}

/// Behind `Bearer` or `Basic` and the blanks that follow.
fn past_scheme(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    let scheme = ["bearer", "basic"].into_iter().find(|scheme| {
        rest.get(..scheme.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(scheme.as_bytes()))
    })?;
    let end = at + scheme.len();
    let from = skip(bytes, end, |b| b.is_ascii_whitespace());
    (from > end).then_some(from)
}

/// Characters of Base64 in all its forms and of bearer tokens.
fn of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'_' | b'.' | b'-' | b'~')
}

fn skip(bytes: &[u8], from: usize, of: impl Fn(u8) -> bool) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    from.min(bytes.len()) + rest.iter().take_while(|byte| of(**byte)).count()
}

/// As [`skip`], over a few bytes.
fn skip_some(bytes: &[u8], from: usize, of: impl Fn(u8) -> bool) -> usize {
    skip(&bytes[..bytes.len().min(from + MAX_NAME)], from, of)
}

/// Control characters would act on the terminal of whoever reads it.
fn push_plain(kept: &mut String, text: &str) {
    kept.extend(text.chars().map(|c| match c {
        '\t' | '\n' => c,
        c if c.is_control() => '?',
        c => c,
    }));
}

fn next_boundary(text: &str, at: usize) -> usize {
    text[at..]
        .chars()
        .next()
        .map_or(text.len(), |c| at + c.len_utf8())
}

#[cfg(test)]
#[path = "redaction_tests.rs"]
mod tests;

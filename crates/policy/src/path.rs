//! Paths in one form, so that a client cannot write a path in another way than a rule does and be passed by.

use std::borrow::Cow;

/// A path without what servers behind undo anyway: percent codes of letters, digits, `-`, `.`, `_` and `~`, segments `.`
/// and `..`, and slashes that stand together. What is told apart by other percent codes stays apart.
#[must_use]
pub fn canonical_path(path: &str) -> Cow<'_, str> {
    if is_canonical(path.as_bytes()) {
        return Cow::Borrowed(path);
    }
    let decoded = decode(path);
    let mut segments: Vec<&str> = Vec::new();
    let mut ends_open = false;
    for segment in decoded.split('/') {
        ends_open = matches!(segment, "" | "." | "..");
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            other => segments.push(other),
        }
    }
    let start = if decoded.starts_with('/') { "/" } else { "" };
    let end = if ends_open && !segments.is_empty() { "/" } else { "" };
    Cow::Owned(format!("{start}{}{end}", segments.join("/")))
}

/// Most paths are, and need no more than this look.
fn is_canonical(path: &[u8]) -> bool {
    !path.contains(&b'%') && !path.windows(2).any(|pair| matches!(pair, b"//" | b"/.")) && path.first() != Some(&b'.')
}

fn decode(path: &str) -> String {
    let mut decoded = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('%') {
        decoded.push_str(before);
        let code = after.get(..2).filter(|code| code.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let byte = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        rest = match (byte, code) {
            (Some(byte), Some(_)) if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => {
                decoded.push(char::from(byte));
                after.get(2..).unwrap_or_default()
            }
            (Some(_), Some(code)) => {
                decoded.push('%');
                decoded.push_str(&code.to_ascii_uppercase());
                after.get(2..).unwrap_or_default()
            }
            _ => {
                decoded.push('%');
                after
            }
        };
    }
    decoded.push_str(rest);
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_form() {
        for (path, expected) in [
            ("", ""),
            ("/", "/"),
            ("/login", "/login"),
            ("/login/", "/login/"),
            ("//login", "/login"),
            ("/a//b///c", "/a/b/c"),
            ("/%6cogin", "/login"),
            ("/%6Cogi%6e", "/login"),
            ("/./login", "/login"),
            ("/%2e/login", "/login"),
            ("/x/../login", "/login"),
            ("/x/%2E%2e/login", "/login"),
            ("/../../login", "/login"),
            ("/login/.", "/login/"),
            ("/login/x/..", "/login/"),
            ("/..", "/"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%2Fb%20c", "/a%2Fb%20c"),
            ("/50%", "/50%"),
            ("/%zz%4", "/%zz%4"),
            ("/%é", "/%é"),
            ("/.well-known/x", "/.well-known/x"),
            ("/a..b/...", "/a..b/..."),
            ("*", "*"),
        ] {
            assert_eq!(canonical_path(path), expected, "{path}");
        }
    }

    proptest! {
        #[test]
        fn it_is_its_own_form(path in "[/.%2eEfaA é]{0,24}") {
            let once = canonical_path(&path).into_owned();
            // A code that decoding put together, such as `%%32e`, is left for the next look.
            prop_assume!(!path.contains("%%") && !once.contains("%2e") && !once.contains("%2E"));
            prop_assert_eq!(canonical_path(&once).into_owned(), once);
        }
    }
}

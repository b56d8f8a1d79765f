//! Paths in the forms that rules match, so that a client cannot evade a rule by writing its path in another way.
//!
//! Servers interpret an odd path differently: some take `%2f` for a slash and others do not, some resolve `..` and others
//! pass it on. A rule cannot know which server is behind it, so each interpretation is a form of its own. A rule matches if
//! any form matches its path, and an exception applies only if it matches all forms.

use std::borrow::Cow;

use crate::request::hex;

/// All forms of a path. Most paths have one, which needs no allocation.
///
/// ```
/// use tidegate_policy::PathForms;
///
/// assert_eq!(PathForms::new("/%6cogin#top").canonical(), "/login");
/// let forms = PathForms::new("/x/..%2flogin");
/// assert_eq!(forms.canonical(), "/x/..%2Flogin");
/// assert_eq!(forms.odd().unwrap().decoded(), b"/login");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathForms<'a> {
    canonical: Cow<'a, str>,
    odd: Option<Box<OddPath>>,
}

/// The further forms of a path that servers interpret differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OddPath {
    decoded: Box<[u8]>,
    unresolved: Box<[u8]>,
}

impl<'a> PathForms<'a> {
    /// Makes the forms of a path without its query. A fragment, from `#` on, is removed.
    #[must_use]
    pub fn new(path: &'a str) -> PathForms<'a> {
        let path = path.split_once('#').map_or(path, |(path, _)| path);
        if is_plain(path.as_bytes()) {
            return PathForms { canonical: Cow::Borrowed(path), odd: None };
        }
        // Only ASCII bytes are replaced, so it is still valid text.
        let canonical = resolve(&decode(path.as_bytes(), is_unreserved));
        let canonical = String::from_utf8_lossy(&canonical).into_owned();
        let unresolved = decode(path.as_bytes(), |_| true);
        let decoded = resolve(&unresolved);
        let is_odd = [&decoded, &unresolved].into_iter().any(|form| *form != canonical.as_bytes());
        let odd = is_odd.then(|| Box::new(OddPath { decoded: decoded.into(), unresolved: unresolved.into() }));
        PathForms { canonical: Cow::Owned(canonical), odd }
    }

    /// Returns the form that logs and expressions show: segments `.` and `..` are resolved, repeated slashes are one, and
    /// percent codes of letters, digits, `-`, `.`, `_` and `~` are decoded. Others are kept, in upper case.
    #[must_use]
    pub fn canonical(&self) -> &str {
        &self.canonical
    }

    /// Returns the further forms, or `None` if all servers interpret the path alike.
    #[must_use]
    pub fn odd(&self) -> Option<&OddPath> {
        self.odd.as_deref()
    }

    /// Returns the form for keys: the decoded one, so that all ways to write a path share a count.
    #[must_use]
    pub fn into_key(self) -> Cow<'a, [u8]> {
        match (self.odd, self.canonical) {
            (Some(odd), _) => Cow::Owned(odd.decoded.into()),
            (None, Cow::Borrowed(path)) => Cow::Borrowed(path.as_bytes()),
            (None, Cow::Owned(path)) => Cow::Owned(path.into_bytes()),
        }
    }
}

impl OddPath {
    /// Returns the form with every percent code decoded once, and then resolved. It may contain any bytes.
    #[must_use]
    pub fn decoded(&self) -> &[u8] {
        &self.decoded
    }

    /// Returns the form with every percent code decoded once, but not resolved: for servers that take `..` for a name.
    #[must_use]
    pub fn unresolved(&self) -> &[u8] {
        &self.unresolved
    }
}

/// The forms of a path, for matching.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forms<'a> {
    pub(crate) canonical: &'a [u8],
    pub(crate) odd: Option<[&'a [u8]; 2]>,
}

impl<'a> Forms<'a> {
    pub(crate) fn new(canonical: &'a str, odd: Option<&'a OddPath>) -> Forms<'a> {
        Forms { canonical: canonical.as_bytes(), odd: odd.map(|odd| [odd.decoded(), odd.unresolved()]) }
    }

    /// Returns the form for keys.
    pub(crate) fn key(self) -> &'a [u8] {
        self.odd.map_or(self.canonical, |[decoded, _]| decoded)
    }
}

/// The forms of a path in lower case.
#[derive(Debug)]
pub(crate) struct FoldedForms<'a> {
    canonical: Cow<'a, [u8]>,
    odd: Option<[Cow<'a, [u8]>; 2]>,
}

impl<'a> FoldedForms<'a> {
    pub(crate) fn new(forms: Forms<'a>) -> FoldedForms<'a> {
        FoldedForms { canonical: fold(forms.canonical), odd: forms.odd.map(|odd| odd.map(fold)) }
    }

    pub(crate) fn forms(&self) -> Forms<'_> {
        Forms { canonical: &self.canonical, odd: self.odd.as_ref().map(|odd| odd.each_ref().map(|form| &**form)) }
    }
}

/// Converts a path to lower case, each character by itself, like servers that ignore case: `K` (the Kelvin sign) becomes `k`
/// and `İ` becomes `i`. Bytes that are not UTF-8 are kept.
pub(crate) fn fold(path: &[u8]) -> Cow<'_, [u8]> {
    if path.iter().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return Cow::Borrowed(path);
    }
    let mut folded = Vec::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        // Only `İ` becomes two characters: a letter and an accent.
        let small = chunk.valid().chars().filter_map(|letter| letter.to_lowercase().next());
        folded.extend_from_slice(small.collect::<String>().as_bytes());
        folded.extend_from_slice(chunk.invalid());
    }
    Cow::Owned(folded)
}

/// Whether a path certainly has one form, like most.
fn is_plain(path: &[u8]) -> bool {
    !path.contains(&b'%') && !path.windows(2).any(|pair| matches!(pair, b"//" | b"/.")) && path.first() != Some(&b'.')
}

/// Whether a byte is unreserved by RFC 3986: its percent code is equivalent to the byte itself.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// Decodes the percent codes of some bytes once. Other codes are kept in upper case, and a percent sign without two
/// hexadecimal digits is kept.
fn decode(path: &[u8], is_decoded: impl Fn(u8) -> bool) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        let ([high, low, after @ ..], b'%') = (tail, first) else {
            decoded.push(*first);
            continue;
        };
        let (Some(upper), Some(lower)) = (hex(*high), hex(*low)) else {
            decoded.push(b'%');
            continue;
        };
        match upper << 4 | lower {
            byte if is_decoded(byte) => decoded.push(byte),
            _ => decoded.extend([b'%', high.to_ascii_uppercase(), low.to_ascii_uppercase()]),
        }
        rest = after;
    }
    decoded
}

/// Resolves segments `.` and `..`, and joins repeated slashes.
fn resolve(path: &[u8]) -> Vec<u8> {
    let mut segments: Vec<&[u8]> = Vec::new();
    let mut ends_open = false;
    for segment in path.split(|byte| *byte == b'/') {
        ends_open = matches!(segment, b"" | b"." | b"..");
        match segment {
            b"" | b"." => {}
            b".." => drop(segments.pop()),
            other => segments.push(other),
        }
    }
    let mut resolved = Vec::with_capacity(path.len());
    resolved.extend(path.first().filter(|first| **first == b'/'));
    resolved.extend(segments.join(&b'/'));
    if ends_open && !segments.is_empty() {
        resolved.push(b'/');
    }
    resolved
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_form_for_all_ways_to_write_it() {
        for (path, expected) in [
            ("", ""),
            ("/", "/"),
            ("/login", "/login"),
            ("/login/", "/login/"),
            ("/login#f", "/login"),
            ("/login#f?x/../y", "/login"),
            ("#", ""),
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
            ("/é/%c3%a9", "/é/%C3%A9"),
            ("/.well-known/x", "/.well-known/x"),
            ("/a..b/...", "/a..b/..."),
            ("*", "*"),
        ] {
            assert_eq!(PathForms::new(path).canonical(), expected, "{path}");
        }
    }

    #[test]
    fn forms_of_odd_paths() {
        for (path, canonical, decoded, unresolved) in [
            ("/%2flogin", "/%2Flogin", &b"/login"[..], &b"//login"[..]),
            ("/.%2flogin", "/.%2Flogin", b"/login", b"/./login"),
            ("/x/..%2flogin", "/x/..%2Flogin", b"/login", b"/x/../login"),
            ("/x/%2e%2e/login", "/login", b"/login", b"/x/../login"),
            ("//login", "/login", b"/login", b"//login"),
            ("/login/../../x/..", "/", b"/", b"/login/../../x/.."),
            // Codes are decoded once, and a `#` that was one is no fragment.
            ("/%252flogin", "/%252flogin", b"/%2flogin", b"/%2flogin"),
            ("/login%23f", "/login%23f", b"/login#f", b"/login#f"),
            ("/%ff%00", "/%FF%00", b"/\xff\0", b"/\xff\0"),
        ] {
            let forms = PathForms::new(path);
            assert_eq!(forms.canonical(), canonical, "{path}");
            let odd = forms.odd().unwrap();
            assert_eq!((odd.decoded(), odd.unresolved()), (decoded, unresolved), "{path}");
            assert_eq!(&*forms.clone().into_key(), decoded, "{path}");
        }
    }

    #[test]
    fn paths_with_one_form() {
        for path in ["", "*", "/a/b?", "/a/b.c", "/a#b", "/é", "/.well-known/x", "/%61", "/%%32e", "/50%", "/a..b"] {
            let forms = PathForms::new(path);
            assert_eq!(forms.odd(), None, "{path}");
            assert_eq!(&*forms.clone().into_key(), forms.canonical().as_bytes(), "{path}");
        }
        assert!(matches!(PathForms::new("/login#f").canonical, Cow::Borrowed("/login")));
    }

    #[test]
    fn letters_are_made_small() {
        for (path, expected) in
            [("/login", "/login"), ("/LoGiN", "/login"), ("/\u{212a}\u{130}-É", "/ki-é"), ("/a%2F", "/a%2f")]
        {
            assert_eq!(*fold(path.as_bytes()), *expected.as_bytes(), "{path}");
        }
        assert_eq!(*fold(b"/A\xffB\xc3"), *b"/a\xffb\xc3");
        assert!(matches!(fold(b"/login"), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn it_is_its_own_form(path in "[/.%2eEfaA é]{0,24}") {
            let once = PathForms::new(&path).canonical().to_owned();
            // A code that decoding put together, such as `%%32e`, is left for the next look.
            prop_assume!(!path.contains("%%") && !once.contains("%2e") && !once.contains("%2E"));
            let twice = PathForms::new(&once).canonical().to_owned();
            prop_assert_eq!(twice, once);
        }

        /// As servers do it that decode everything first: what they see is one of the forms.
        #[test]
        fn the_forms_are_what_servers_see(path in "[/.%2eEfaA é]{0,24}") {
            let forms = PathForms::new(&path);
            let all = Forms::new(forms.canonical(), forms.odd());
            let all = [all.canonical].into_iter().chain(all.odd.into_iter().flatten()).collect::<Vec<_>>();
            let decoded = decode(path.as_bytes(), |_| true);
            prop_assert!(all.contains(&&*decoded));
            prop_assert!(all.contains(&&*resolve(&decoded)));
            let undecoded = resolve(&decode(path.as_bytes(), is_unreserved));
            prop_assert!(all.contains(&&*undecoded));
        }
    }
}

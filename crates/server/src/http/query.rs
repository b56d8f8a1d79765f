//! Queries and parts of paths: decoded, bounded, and nothing in them ignored.

use std::borrow::Cow;
use std::fmt;

use tidegate_policy::json;

use super::answer::{Failure, quote};
use crate::bounds::QUERY_PARAMETERS_MAX;

/// The parameters of a query. What is taken is what it may hold: [`Query::finish`] refuses the rest.
pub(super) struct Query<'a> {
    left: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    taken: Vec<&'static str>,
}

impl<'a> Query<'a> {
    pub(super) fn parse(text: Option<&'a str>) -> Result<Query<'a>, Failure> {
        let mut left: Vec<(Cow<'a, str>, Cow<'a, str>)> = Vec::new();
        for part in text.unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
            if left.len() == QUERY_PARAMETERS_MAX {
                let remedy = format_args!("use at most {QUERY_PARAMETERS_MAX}");
                return Err(Failure::bad("query", "too many parameters", remedy));
            }
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (name, value) = (decode(name, true)?, decode(value, true)?);
            if left.iter().any(|(other, _)| *other == name) {
                return Err(Failure::bad(quote(&name), "given twice", "give it once"));
            }
            left.push((name, value));
        }
        Ok(Query { left, taken: Vec::new() })
    }

    /// Whether a parameter is there that was not taken.
    pub(super) fn has(&self, name: &str) -> bool {
        self.left.iter().any(|(other, _)| other == name)
    }

    pub(super) fn take(&mut self, name: &'static str) -> Option<Cow<'a, str>> {
        self.taken.push(name);
        let index = self.left.iter().position(|(other, _)| other == name)?;
        Some(self.left.swap_remove(index).1)
    }

    pub(super) fn need(&mut self, name: &'static str, remedy: impl fmt::Display) -> Result<Cow<'a, str>, Failure> {
        self.take(name).ok_or_else(|| Failure::bad(name, "missing", remedy))
    }

    /// A whole number, if the parameter is there.
    pub(super) fn whole(&mut self, name: &'static str, remedy: impl fmt::Display) -> Result<Option<u64>, Failure> {
        let Some(value) = self.take(name) else { return Ok(None) };
        whole(name, &value, remedy).map(Some)
    }

    /// All parameters whose names begin with `prefix`, without it, in their order.
    pub(super) fn take_prefixed(&mut self, prefix: &'static str) -> Vec<(String, Cow<'a, str>)> {
        self.taken.push(prefix);
        let (taken, left) = std::mem::take(&mut self.left).into_iter().partition(|(name, _)| name.starts_with(prefix));
        self.left = left;
        let taken: Vec<(Cow<'a, str>, Cow<'a, str>)> = taken;
        taken
            .into_iter()
            .map(|(name, value)| (name.get(prefix.len()..).unwrap_or_default().to_owned(), value))
            .collect()
    }

    /// Refuses what was not taken.
    pub(super) fn finish(self) -> Result<(), Failure> {
        match self.left.first() {
            None => Ok(()),
            Some((name, _)) => {
                let remedy = format_args!("use {}", self.taken.join(", "));
                Err(Failure::bad(quote(name), "unknown parameter", remedy))
            }
        }
    }
}

/// A whole number.
pub(super) fn whole(name: &str, value: &str, remedy: impl fmt::Display) -> Result<u64, Failure> {
    Ok(json::whole(name, value, remedy)?)
}

/// Undoes percent-encoding; in a query a plus is a space.
pub(super) fn decode(text: &str, is_query: bool) -> Result<Cow<'_, str>, Failure> {
    if !text.bytes().any(|byte| byte == b'%' || (is_query && byte == b'+')) {
        return Ok(Cow::Borrowed(text));
    }
    let broken = || Failure::bad(quote(text), "cannot be decoded", "write UTF-8 with %XX for special bytes");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' if is_query => b' ',
            b'%' => {
                let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
                let (high, low) = (digit().ok_or_else(broken)?, digit().ok_or_else(broken)?);
                u8::try_from(high * 16 + low).map_err(|_| broken())?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| broken())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding() {
        let cases = [
            ("user:42", Some("user:42")),
            ("a+b", Some("a b")),
            ("a%2Bb%00%0d%0A", Some("a+b\0\r\n")),
            ("%C3%A9", Some("é")),
            ("%C3", None),
            ("%", None),
            ("%2", None),
            ("%zz", None),
            ("%+1", None),
        ];
        for (text, expected) in cases {
            assert_eq!(decode(text, true).ok().as_deref(), expected, "{text}");
        }
        assert_eq!(decode("a+b", false).unwrap(), "a+b");
    }
}

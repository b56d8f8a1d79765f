//! From bytes to commands: arrays of bulk strings, and lines as people type them.
//!
//! Arguments are slices of what was read; only those of typed lines are copied, since quotes and escapes change them.
//! A command that came in part is read on from where it stopped, so that its length costs no more than its bytes. A
//! declared length reserves nothing.

use crate::bounds::{
    ARGUMENT_BYTES_MAX, ARGUMENTS_MAX, COMMAND_BYTES_MAX, INLINE_BYTES_MAX, LENGTH_DIGITS_MAX,
    SKIPPED_ARGUMENT_BYTES_MAX, UNAUTHENTICATED_ARGUMENT_BYTES_MAX, UNAUTHENTICATED_ARGUMENTS_MAX,
    UNAUTHENTICATED_INLINE_BYTES_MAX,
};

use super::inline;

/// Where an argument lies: its first byte and the one after its last.
pub(crate) type Span = (u32, u32);

/// A command with its arguments, the name first.
#[derive(Clone, Copy)]
pub(crate) struct Command<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Command<'a> {
    pub(crate) fn new(bytes: &'a [u8], spans: &'a [Span]) -> Command<'a> {
        Command { bytes, spans }
    }

    /// How many arguments there are, the name included.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    /// An argument; empty if there is none.
    #[inline]
    pub(crate) fn get(&self, number: usize) -> &'a [u8] {
        self.spans.get(number).and_then(|span| slice(self.bytes, *span)).unwrap_or_default()
    }

    /// The arguments from one on.
    pub(crate) fn from(&self, number: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        let spans = self.spans.get(number..).unwrap_or_default();
        spans.iter().map(move |span| slice(bytes, *span).unwrap_or_default())
    }
}

#[inline]
fn slice(bytes: &[u8], (start, end): Span) -> Option<&[u8]> {
    bytes.get(start as usize..end as usize)
}

/// Why bytes are not a command. What follows cannot be understood either, so that the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtocolError {
    #[error("invalid multibulk length")]
    ArrayLength,
    #[error("unauthenticated multibulk length")]
    UnauthenticatedArrayLength,
    #[error("invalid bulk length")]
    BulkLength,
    #[error("unauthenticated bulk length")]
    UnauthenticatedBulkLength,
    #[error("expected '$', got '{}'", .0.escape_ascii())]
    NoBulk(u8),
    #[error("expected CRLF after an argument")]
    NoLineEnd,
    #[error("too big request")]
    TooBig,
    #[error("too big inline request")]
    TooBigInline,
    #[error("unbalanced quotes in request")]
    UnbalancedQuotes,
}

/// What the next bytes are.
pub(crate) enum Parsed<'a> {
    /// A command, and how many bytes it took.
    Command(Command<'a>, usize),
    /// The end of a command that was too long to be kept, and how many bytes that took.
    TooLong(usize),
    /// Nothing to answer, as a blank line or a part of a command that is too long, and how many bytes it took.
    Nothing(usize),
    /// A command that is not complete yet.
    Incomplete,
}

/// Reads commands, one after the other, as their bytes come.
#[derive(Default)]
pub(crate) struct Parser {
    /// Whether the password was said, or need not be.
    pub(crate) authenticated: bool,
    /// The arguments found so far, counted from the command's first byte.
    spans: Vec<Span>,
    /// How many arguments are still to come.
    missing: usize,
    /// How far the command was read.
    at: usize,
    /// What is skipped, if the command is too long to be kept.
    skipping: Option<Skipped>,
    /// The arguments of a typed line.
    unquoted: Vec<u8>,
}

impl Parser {
    /// Whether it is in the middle of a command whose first bytes were taken already.
    pub(crate) fn is_skipping(&self) -> bool {
        self.skipping.is_some()
    }

    /// Reads the next command from all bytes that were not taken yet.
    #[inline]
    pub(crate) fn next<'a>(&'a mut self, bytes: &'a [u8]) -> Result<Parsed<'a>, ProtocolError> {
        if self.missing == 0 {
            match bytes.first() {
                None => return Ok(Parsed::Incomplete),
                Some(b'*') => match self.start(bytes)? {
                    Started::Array => {}
                    Started::Empty(length) => return Ok(Parsed::Nothing(length)),
                    Started::Incomplete => return Ok(Parsed::Incomplete),
                },
                Some(_) => return self.inline(bytes),
            }
        } else if self.skipping.is_some() {
            return self.skip(bytes);
        }
        while self.missing > 0 {
            if !self.argument(bytes)? {
                return if self.skipping.is_some() { self.skip(bytes) } else { Ok(Parsed::Incomplete) };
            }
        }
        let length = std::mem::take(&mut self.at);
        Ok(Parsed::Command(Command::new(bytes, &self.spans), length))
    }

    /// Reads how many arguments the array has.
    #[inline]
    fn start(&mut self, bytes: &[u8]) -> Result<Started, ProtocolError> {
        let (count, at) = match number(bytes, 1) {
            Number::Is(count, at) => (count, at),
            Number::Incomplete => return Ok(Started::Incomplete),
            Number::Invalid => return Err(ProtocolError::ArrayLength),
        };
        match usize::try_from(count) {
            Err(_) | Ok(0) => return Ok(Started::Empty(at)),
            Ok(count) if count > ARGUMENTS_MAX => return Err(ProtocolError::ArrayLength),
            Ok(count) if count > UNAUTHENTICATED_ARGUMENTS_MAX && !self.authenticated => {
                return Err(ProtocolError::UnauthenticatedArrayLength);
            }
            Ok(count) => self.missing = count,
        }
        self.spans.clear();
        self.at = at;
        Ok(Started::Array)
    }

    /// Reads one argument; false if it is not there whole, or is to be skipped.
    #[inline]
    fn argument(&mut self, bytes: &[u8]) -> Result<bool, ProtocolError> {
        let Some((length, start)) = length_of_argument(bytes, self.at)? else { return Ok(false) };
        if length > UNAUTHENTICATED_ARGUMENT_BYTES_MAX && !self.authenticated {
            return Err(ProtocolError::UnauthenticatedBulkLength);
        }
        let end = start + length;
        if length > ARGUMENT_BYTES_MAX || end + 2 > COMMAND_BYTES_MAX {
            if !self.authenticated {
                return Err(ProtocolError::TooBig);
            }
            (self.at, self.skipping) = (start, Some(Skipped::Argument { bytes_left: length }));
            return Ok(false);
        }
        match bytes.get(end..end + 2) {
            None => return Ok(false),
            Some(b"\r\n") => {}
            Some(_) => return Err(ProtocolError::NoLineEnd),
        }
        self.spans.push(span(start, end));
        self.at = end + 2;
        self.missing -= 1;
        Ok(true)
    }

    /// Skips the rest of a command that is too long, as far as it came: of its arguments only the lengths are looked at.
    #[cold]
    fn skip<'a>(&mut self, bytes: &[u8]) -> Result<Parsed<'a>, ProtocolError> {
        let mut at = std::mem::take(&mut self.at);
        while let Some(skipped) = self.skipping {
            let next = match skipped {
                Skipped::Argument { bytes_left: 0 } => match bytes.get(at..at + 2) {
                    None => break,
                    Some(b"\r\n") => {
                        at += 2;
                        self.missing -= 1;
                        (self.missing > 0).then_some(Skipped::Length)
                    }
                    Some(_) => return Err(ProtocolError::NoLineEnd),
                },
                Skipped::Argument { bytes_left } => {
                    let taken = bytes_left.min(bytes.len() - at);
                    if taken == 0 {
                        break;
                    }
                    at += taken;
                    Some(Skipped::Argument { bytes_left: bytes_left - taken })
                }
                Skipped::Length => {
                    let Some((length, start)) = length_of_argument(bytes, at)? else { break };
                    at = start;
                    Some(Skipped::Argument { bytes_left: length })
                }
            };
            self.skipping = next;
        }
        Ok(match (self.skipping, at) {
            (None, at) => Parsed::TooLong(at),
            (Some(_), 0) => Parsed::Incomplete,
            (Some(_), at) => Parsed::Nothing(at),
        })
    }

    /// Reads a typed line.
    #[cold]
    fn inline<'a>(&'a mut self, bytes: &'a [u8]) -> Result<Parsed<'a>, ProtocolError> {
        let (bytes_max, words_max) = match self.authenticated {
            true => (INLINE_BYTES_MAX, ARGUMENTS_MAX),
            false => (UNAUTHENTICATED_INLINE_BYTES_MAX, UNAUTHENTICATED_ARGUMENTS_MAX),
        };
        let searched = bytes.get(self.at..).unwrap_or_default();
        let Some(found) = memchr::memchr(b'\n', searched) else {
            self.at = bytes.len();
            return if self.at > bytes_max { Err(ProtocolError::TooBigInline) } else { Ok(Parsed::Incomplete) };
        };
        let end = self.at + found;
        self.at = 0;
        if end > bytes_max {
            return Err(ProtocolError::TooBigInline);
        }
        let line = bytes.get(..end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.unquoted.clear();
        // A long line must not leave its room behind.
        self.unquoted.shrink_to(INLINE_BYTES_MAX / 64);
        self.spans.clear();
        if !inline::split(line, words_max, &mut self.unquoted, &mut self.spans) {
            return Err(ProtocolError::UnbalancedQuotes);
        }
        if self.spans.len() > words_max {
            return Err(ProtocolError::TooBigInline);
        }
        if self.spans.is_empty() {
            return Ok(Parsed::Nothing(end + 1));
        }
        Ok(Parsed::Command(Command::new(&self.unquoted, &self.spans), end + 1))
    }
}

/// What comes next of a command that is skipped.
#[derive(Clone, Copy)]
enum Skipped {
    /// So much of an argument, and its line end.
    Argument { bytes_left: usize },
    /// The length of an argument.
    Length,
}

/// Reads the length of the argument that begins at a byte, and where its first byte is; none if it is not there whole.
#[inline]
fn length_of_argument(bytes: &[u8], at: usize) -> Result<Option<(usize, usize)>, ProtocolError> {
    match bytes.get(at) {
        None => return Ok(None),
        Some(b'$') => {}
        Some(other) => return Err(ProtocolError::NoBulk(*other)),
    }
    let (length, start) = match number(bytes, at + 1) {
        Number::Is(length, start) => (length, start),
        Number::Incomplete => return Ok(None),
        Number::Invalid => return Err(ProtocolError::BulkLength),
    };
    match usize::try_from(length) {
        Ok(length) if length <= SKIPPED_ARGUMENT_BYTES_MAX => Ok(Some((length, start))),
        _ => Err(ProtocolError::BulkLength),
    }
}

/// What became of the first line of an array.
enum Started {
    Array,
    Empty(usize),
    Incomplete,
}

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "both lie within COMMAND_BYTES_MAX")]
pub(super) fn span(start: usize, end: usize) -> Span {
    const { assert!(INLINE_BYTES_MAX <= COMMAND_BYTES_MAX && COMMAND_BYTES_MAX < u32::MAX as usize) };
    (start as u32, end as u32)
}

/// A number with its line end.
enum Number {
    /// The number, and where the next line begins.
    Is(i64, usize),
    Incomplete,
    Invalid,
}

/// Reads a length: digits without needless zeros, perhaps a minus, and CRLF.
#[inline]
fn number(bytes: &[u8], start: usize) -> Number {
    let negative = bytes.get(start) == Some(&b'-');
    let first = start + usize::from(negative);
    let mut value = 0_i64;
    let mut at = first;
    loop {
        match bytes.get(at) {
            Some(digit @ b'0'..=b'9') if at - first < LENGTH_DIGITS_MAX => value = value * 10 + i64::from(digit - b'0'),
            Some(b'\r') if at > first => break,
            None => return Number::Incomplete,
            Some(_) => return Number::Invalid,
        }
        at += 1;
    }
    if at - first > 1 && bytes.get(first) == Some(&b'0') {
        return Number::Invalid;
    }
    match bytes.get(at + 1) {
        Some(b'\n') => Number::Is(if negative { -value } else { value }, at + 2),
        None => Number::Incomplete,
        Some(_) => Number::Invalid,
    }
}

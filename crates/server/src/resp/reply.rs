//! Replies, in the second or third version of the protocol.

use std::fmt;
use std::io::Write;

/// A version of the protocol of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Resp2,
    Resp3,
}

/// Replies that are still to be written to the client, in the order of its commands.
pub(crate) struct Replies {
    pub(crate) version: Version,
    bytes: Vec<u8>,
}

impl Replies {
    pub(crate) fn new() -> Replies {
        Replies { version: Version::Resp2, bytes: Vec::new() }
    }

    pub(crate) fn with_version(version: Version) -> Replies {
        Replies { version, bytes: Vec::new() }
    }

    /// Adds the replies to later commands.
    pub(crate) fn append(&mut self, later: &Replies) {
        self.bytes.extend_from_slice(&later.bytes);
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Forgets what was written, and most of the room it took.
    pub(crate) fn clear(&mut self, room: usize) {
        self.bytes.clear();
        if self.bytes.capacity() > room {
            self.bytes.shrink_to(room);
        }
    }

    pub(crate) fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    pub(crate) fn ok(&mut self) {
        self.bytes.extend_from_slice(b"+OK\r\n");
    }

    /// An error: a word in capitals that programs can tell apart, then text for people.
    pub(crate) fn error(&mut self, text: impl fmt::Display) {
        self.bytes.push(b'-');
        let start = self.bytes.len();
        // Writing to memory does not fail.
        let _ = write!(self.bytes, "{text}");
        for byte in self.bytes.iter_mut().skip(start) {
            // A line end within would let a caller's text pass for a reply of its own.
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.end();
    }

    pub(crate) fn integer(&mut self, value: i64) {
        self.line(b':', itoa::Buffer::new().format(value).as_bytes());
    }

    pub(crate) fn bulk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.count(b'$', bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.end();
    }

    /// Text that people read as it stands, told apart from data in the third version.
    pub(crate) fn text(&mut self, text: &str) {
        match self.version {
            Version::Resp2 => self.bulk(text),
            Version::Resp3 => {
                self.count(b'=', text.len() + 4);
                self.bytes.extend_from_slice(b"txt:");
                self.bytes.extend_from_slice(text.as_bytes());
                self.end();
            }
        }
    }

    pub(crate) fn null(&mut self) {
        self.bytes.extend_from_slice(match self.version {
            Version::Resp2 => b"$-1\r\n",
            Version::Resp3 => b"_\r\n",
        });
    }

    /// The head of an array: as many replies follow.
    pub(crate) fn array(&mut self, count: usize) {
        self.count(b'*', count);
    }

    /// The head of a map: as many pairs of replies follow.
    pub(crate) fn map(&mut self, pairs: usize) {
        match self.version {
            Version::Resp2 => self.count(b'*', 2 * pairs),
            Version::Resp3 => self.count(b'%', pairs),
        }
    }

    /// An array of five integers.
    #[inline]
    pub(crate) fn five(&mut self, values: [i64; 5]) {
        self.bytes.extend_from_slice(b"*5\r\n");
        for value in values {
            self.short_integer(value);
        }
    }

    /// An integer that mostly has one digit or is minus one.
    #[inline]
    fn short_integer(&mut self, value: i64) {
        match u8::try_from(value) {
            Ok(digit @ 0..=9) => self.bytes.extend_from_slice(&[b':', b'0' + digit, b'\r', b'\n']),
            _ if value == -1 => self.bytes.extend_from_slice(b":-1\r\n"),
            _ => self.integer(value),
        }
    }

    fn count(&mut self, kind: u8, count: usize) {
        self.line(kind, itoa::Buffer::new().format(count).as_bytes());
    }

    fn line(&mut self, kind: u8, bytes: &[u8]) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(bytes);
        self.end();
    }

    fn end(&mut self) {
        self.bytes.extend_from_slice(b"\r\n");
    }
}

/// Bytes of a caller as an error shows them: at most so many, whatever they are.
pub(crate) struct Shown<'a>(pub(crate) &'a [u8], pub(crate) usize);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = self.0.get(..self.1).unwrap_or(self.0);
        String::from_utf8_lossy(part).fmt(formatter)
    }
}

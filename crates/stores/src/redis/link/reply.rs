//! What a server replies: the second version of the protocol of Redis, as it comes in.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};

use super::bounds::{READ_BYTES, REPLY_BYTES_MAX, REPLY_DEPTH_MAX};

/// One reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Nil,
    Int(i64),
    Bulk(Box<[u8]>),
    Simple(Box<str>),
    Error(ServerError),
    Array(Vec<Reply>),
}

/// What a server says instead of an answer: a code and details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerError(Box<str>);

impl ServerError {
    /// The first word, such as `NOSCRIPT`.
    pub(crate) fn code(&self) -> &str {
        self.0.split(' ').next().unwrap_or_default()
    }

    /// What follows the code; empty if nothing does.
    pub(crate) fn details(&self) -> &str {
        self.0.split_once(' ').map_or("", |(_, details)| details)
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What came in is no reply of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl Reply {
    /// Reads the reply that a buffer begins with, and says how many bytes it takes; nothing if it is not all there yet.
    /// A declared length makes no room for itself: only what came in does.
    pub(super) fn read(buffer: &[u8]) -> Result<Option<(Reply, usize)>, Malformed> {
        let mut reader = Reader { buffer, at: 0 };
        Ok(reader.reply(REPLY_DEPTH_MAX)?.map(|reply| (reply, reader.at)))
    }

    /// The bytes of a text, of either kind.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Reply::Bulk(bytes) => std::str::from_utf8(bytes).ok(),
            Reply::Simple(text) => Some(text),
            Reply::Nil | Reply::Int(_) | Reply::Error(_) | Reply::Array(_) => None,
        }
    }
}

struct Reader<'a> {
    buffer: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn reply(&mut self, depth: usize) -> Result<Option<Reply>, Malformed> {
        let Some(line) = self.line()? else { return Ok(None) };
        let Some((kind, rest)) = self.buffer[line.0..line.1].split_first() else { return Err(Malformed) };
        Ok(Some(match kind {
            b':' => Reply::Int(integer(rest)?),
            b'+' => Reply::Simple(String::from_utf8_lossy(rest).into()),
            b'-' => Reply::Error(ServerError(String::from_utf8_lossy(rest).into())),
            b'$' => match integer(rest)? {
                -1 => Reply::Nil,
                length => return self.bulk(length),
            },
            b'*' => match integer(rest)? {
                -1 => Reply::Nil,
                count => return self.array(count, depth),
            },
            _ => return Err(Malformed),
        }))
    }

    /// The place of the next line, without its end.
    fn line(&mut self) -> Result<Option<(usize, usize)>, Malformed> {
        let rest = &self.buffer[self.at..];
        let Some(end) = rest.iter().position(|byte| *byte == b'\r') else {
            return if rest.len() > REPLY_BYTES_MAX { Err(Malformed) } else { Ok(None) };
        };
        match rest.get(end + 1) {
            None => Ok(None),
            Some(b'\n') => {
                let line = (self.at, self.at + end);
                self.at += end + 2;
                Ok(Some(line))
            }
            Some(_) => Err(Malformed),
        }
    }

    fn bulk(&mut self, length: i64) -> Result<Option<Reply>, Malformed> {
        let length = usize::try_from(length).ok().filter(|length| *length <= REPLY_BYTES_MAX).ok_or(Malformed)?;
        let Some(bytes) = self.buffer.get(self.at..self.at + length + 2) else { return Ok(None) };
        let (bytes, end) = bytes.split_at(length);
        if end != b"\r\n" {
            return Err(Malformed);
        }
        self.at += length + 2;
        Ok(Some(Reply::Bulk(bytes.into())))
    }

    fn array(&mut self, count: i64, depth: usize) -> Result<Option<Reply>, Malformed> {
        let count = usize::try_from(count).ok().filter(|count| *count <= REPLY_BYTES_MAX).ok_or(Malformed)?;
        let depth = depth.checked_sub(1).ok_or(Malformed)?;
        // Scripts reply with a few parts; whoever has more comes by and by.
        let mut parts = Vec::with_capacity(count.min(8));
        for _ in 0..count {
            let Some(part) = self.reply(depth)? else { return Ok(None) };
            parts.push(part);
        }
        Ok(Some(Reply::Array(parts)))
    }
}

/// What came in and was not read yet.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    filled: usize,
}

impl Inbox {
    /// Takes in what a stream has; 0 if it has ended.
    pub(super) fn poll_fill<S: AsyncRead + ?Sized>(
        &mut self,
        stream: Pin<&mut S>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if self.bytes.len() - self.filled < READ_BYTES / 2 {
            self.bytes.resize(self.filled + READ_BYTES, 0);
        }
        let mut room = ReadBuf::new(&mut self.bytes[self.filled..]);
        std::task::ready!(stream.poll_read(context, &mut room))?;
        let count = room.filled().len();
        self.filled += count;
        Poll::Ready(Ok(count))
    }

    /// Takes out all replies that are whole.
    pub(super) fn take_all(&mut self, replies: &mut Vec<Reply>) -> Result<(), Malformed> {
        let mut at = 0;
        let read = loop {
            match Reply::read(&self.bytes[at..self.filled]) {
                Ok(Some((reply, length))) => {
                    replies.push(reply);
                    at += length;
                }
                // Parts that are short can make a reply that has no end.
                Ok(None) if self.filled - at > REPLY_BYTES_MAX => break Err(Malformed),
                Ok(None) => break Ok(()),
                Err(malformed) => break Err(malformed),
            }
        };
        self.bytes.copy_within(at..self.filled, 0);
        self.filled -= at;
        // Room that one large reply needed is not kept.
        if self.filled == 0 && self.bytes.len() > 4 * READ_BYTES {
            self.bytes = Vec::new();
        }
        read
    }
}

fn integer(digits: &[u8]) -> Result<i64, Malformed> {
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<(Reply, usize)>, Malformed> {
        Reply::read(text.as_bytes())
    }

    #[test]
    fn replies_are_read_one_by_one() {
        let bulk = |text: &str| Reply::Bulk(text.as_bytes().into());
        for (text, expected) in [
            (":-5\r\n", Reply::Int(-5)),
            ("+OK\r\n", Reply::Simple("OK".into())),
            ("$-1\r\n", Reply::Nil),
            ("*-1\r\n", Reply::Nil),
            ("$3\r\na\r\n\r\n", bulk("a\r\n")),
            ("$0\r\n\r\n", bulk("")),
            ("*0\r\n", Reply::Array(Vec::new())),
            ("*2\r\n:1\r\n*1\r\n$1\r\nx\r\n", Reply::Array(vec![Reply::Int(1), Reply::Array(vec![bulk("x")])])),
        ] {
            assert_eq!(read(&format!("{text}:7\r\n")), Ok(Some((expected, text.len()))), "{text:?}");
            for part in 0..text.len() {
                assert_eq!(read(&text[..part]), Ok(None), "{:?}", &text[..part]);
            }
        }
    }

    #[test]
    fn errors_have_a_code_and_details() {
        for (text, code, details) in [("MOVED 5 a:1", "MOVED", "5 a:1"), ("OOPS", "OOPS", "")] {
            let line = format!("-{text}\r\n");
            let Ok(Some((Reply::Error(error), _))) = read(&line) else { panic!("no error") };
            assert_eq!((error.code(), error.details(), error.to_string().as_str()), (code, details, text));
        }
    }

    #[test]
    fn nonsense_is_refused_and_makes_no_room() {
        let deep = "*1\r\n".repeat(REPLY_DEPTH_MAX + 1);
        for text in
            ["!?\r\n", "*x\r\n", ":\r\n", "\r\n", "$-2\r\n", "$2\r\nabc\r\n", "$99999999999\r\n", "+a\rb\r\n", &deep]
        {
            assert_eq!(read(text), Err(Malformed), "{text:?}");
        }
        assert_eq!(read("*1000000\r\n:1\r\n"), Ok(None));
    }

    #[test]
    fn a_reply_without_an_end_is_refused() {
        let part = format!("${}\r\n{}\r\n", REPLY_BYTES_MAX / 2, "x".repeat(REPLY_BYTES_MAX / 2));
        let text = format!("*9\r\n{part}{part}");
        let mut inbox = Inbox { filled: part.len() + 4, bytes: text.into_bytes() };
        assert_eq!(inbox.take_all(&mut Vec::new()), Ok(()));
        inbox.filled = inbox.bytes.len();
        assert_eq!(inbox.take_all(&mut Vec::new()), Err(Malformed));
    }
}

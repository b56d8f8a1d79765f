//! HTTP/2 by hand: frames one by one, also those that no client should send.

use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// Encodes a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The first bytes of a client, with the largest flow-control window.
pub(crate) fn greeting() -> Vec<u8> {
    let window = 0x7fff_0000_u32.to_be_bytes();
    [PREFACE, &frame(SETTINGS, 0, 0, &[]), &frame(WINDOW_UPDATE, 0, 0, &window)].concat()
}

/// The head of a call to the limiter. Names and values stand in it as they are, so that no table is kept.
pub(crate) fn head() -> Vec<u8> {
    // POST and http, by their numbers in the table that everybody has.
    let mut block = vec![0x83, 0x86];
    let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    for (name, value) in
        [(":path", path), (":authority", "soak"), ("content-type", "application/grpc"), ("te", "trailers")]
    {
        block.extend(literal(name, value));
    }
    block
}

/// A header that is not remembered.
pub(crate) fn literal(name: &str, value: &str) -> Vec<u8> {
    let short = |text: &str| u8::try_from(text.len()).ok().filter(|length| *length < 127).unwrap();
    [&[0, short(name)], name.as_bytes(), &[short(value)], value.as_bytes()].concat()
}

/// A frame as it came.
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// A connection whose frames are read one by one.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    next: u32,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Connection> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.set_nodelay(true)?;
        stream.write_all(&greeting())?;
        Ok(Connection { stream: BufReader::new(stream), next: 1 })
    }

    pub(crate) fn read(&mut self) -> io::Result<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head)?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.stream.read_exact(&mut payload)?;
        Ok(Frame { kind, flags, stream: u32::from_be_bytes(stream), payload })
    }

    /// Sends a message and waits for the answer; also whether the server goes away after it.
    pub(crate) fn call(&mut self, message: &[u8]) -> io::Result<(Vec<u8>, bool)> {
        let stream = self.next;
        self.next += 2;
        let framed = [&[0], &u32::try_from(message.len()).unwrap().to_be_bytes()[..], message].concat();
        let call = [frame(HEADERS, END_HEADERS, stream, &head()), frame(DATA, END_STREAM, stream, &framed)].concat();
        // A server that has gone away said so before, which can still be read.
        let _ = self.stream.get_mut().write_all(&call);
        let (mut answer, mut goes) = (Vec::new(), false);
        loop {
            let frame = self.read()?;
            match frame.kind {
                SETTINGS | PING if frame.flags & ACK == 0 => self.acknowledge(&frame)?,
                GOAWAY => {
                    goes = true;
                    let last = u32::from_be_bytes(frame.payload[..4].try_into().unwrap());
                    if last < stream {
                        // The server has not processed the call, so a client can retry it elsewhere.
                        return Err(io::ErrorKind::ConnectionRefused.into());
                    }
                }
                RST_STREAM if frame.stream == stream => return Err(io::Error::other("the call was reset")),
                DATA if frame.stream == stream => answer.extend(&frame.payload),
                _ => {}
            }
            let is_last = matches!(frame.kind, DATA | HEADERS) && frame.flags & END_STREAM != 0;
            if is_last && frame.stream == stream {
                return Ok((answer.get(5..).ok_or_else(|| io::Error::other("no message"))?.to_vec(), goes));
            }
        }
    }

    fn acknowledge(&mut self, asked: &Frame) -> io::Result<()> {
        let payload = if asked.kind == PING { &asked.payload[..] } else { &[] };
        self.stream.get_mut().write_all(&frame(asked.kind, ACK, 0, payload))
    }
}

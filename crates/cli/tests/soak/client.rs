//! Clients of the three protocols, which all ask whether one more request of a user may pass.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tidegate_testkit::http;
use tidegate_testkit::tidegate::Tidegate;

use crate::http2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    Grpc,
    Resp,
}

pub(crate) const PROTOCOLS: [Protocol; 3] = [Protocol::Http, Protocol::Grpc, Protocol::Resp];

impl Protocol {
    pub(crate) fn address(self, tidegate: &Tidegate) -> SocketAddr {
        match self {
            Protocol::Http => tidegate.http,
            Protocol::Grpc => tidegate.grpc,
            Protocol::Resp => tidegate.resp,
        }
    }

    /// Its name in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Protocol::Http => "http",
            Protocol::Grpc => "grpc",
            Protocol::Resp => "resp",
        }
    }
}

/// Returns rules that allow each user this many units per hour.
pub(crate) fn rules(units: u64) -> String {
    format!("domains: {{api: {{rules: [{{name: per-user, key: {{entry: user}}, limit: {units}/hour}}]}}}}\n")
}

/// The answer to a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) quota: u64,
    pub(crate) left: u64,
    /// Whether the server closes the connection after this answer.
    pub(crate) is_last: bool,
}

pub(crate) enum Client {
    Http(http::Connection),
    Grpc(http2::Connection),
    Resp(BufReader<TcpStream>),
}

impl Client {
    pub(crate) fn open(protocol: Protocol, address: SocketAddr) -> io::Result<Client> {
        Ok(match protocol {
            Protocol::Http => Client::Http(http::Connection::open(address)?),
            Protocol::Grpc => Client::Grpc(http2::Connection::open(address)?),
            Protocol::Resp => {
                let stream = TcpStream::connect(address)?;
                stream.set_read_timeout(Some(Duration::from_secs(10)))?;
                stream.set_nodelay(true)?;
                Client::Resp(BufReader::new(stream))
            }
        })
    }

    /// Takes one unit. An error of the kind `Other` is a wrong or incomplete answer.
    pub(crate) fn ask(&mut self, user: &str) -> io::Result<Answer> {
        match self {
            Client::Http(connection) => ask_http(connection, user),
            Client::Grpc(connection) => ask_grpc(connection, user),
            Client::Resp(stream) => ask_resp(stream, user),
        }
    }
}

fn ask_http(connection: &mut http::Connection, user: &str) -> io::Result<Answer> {
    let body = format!(r#"{{"domain":"api","descriptors":[{{"user":"{user}"}}]}}"#);
    let answer = connection.ask("POST", "/v1/check", &[], &body)?;
    let number = |header: &str, before: &str| {
        let value = answer.header(header)?;
        value.split(';').find_map(|part| part.strip_prefix(before)?.parse().ok())
    };
    let numbers = number("ratelimit-policy", "q=").zip(number("ratelimit", "r="));
    let (quota, left) = numbers.ok_or_else(|| io::Error::other(format!("{answer:?}")))?;
    Ok(Answer { quota, left, is_last: answer.header("connection") == Some("close") })
}

fn ask_resp(stream: &mut BufReader<TcpStream>, user: &str) -> io::Result<Answer> {
    stream.get_mut().write_all(format!("TIDEGATE.CHECK api user {user}\r\n").as_bytes())?;
    // Five numbers and the name of a rule, which has a line for its length.
    let mut lines = Vec::new();
    for _ in 0..8 {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            let kind = if lines.is_empty() { io::ErrorKind::UnexpectedEof } else { io::ErrorKind::Other };
            return Err(kind.into());
        }
        lines.push(line.trim_end().to_owned());
    }
    let number = |line: usize| lines[line].strip_prefix(':')?.parse().ok();
    let (quota, left) = number(2).zip(number(3)).ok_or_else(|| io::Error::other(format!("{lines:?}")))?;
    Ok(Answer { quota, left, is_last: false })
}

fn ask_grpc(connection: &mut http2::Connection, user: &str) -> io::Result<Answer> {
    let entry = [field(1, b"user"), field(2, user.as_bytes())].concat();
    let request = [field(1, b"api"), field(2, &field(1, &entry))].concat();
    let (answer, is_last) = connection.call(&request)?;
    let status = bytes_of(&answer, 2).ok_or_else(|| io::Error::other(format!("no status: {answer:?}")))?;
    let limit = bytes_of(status, 2).ok_or_else(|| io::Error::other(format!("no limit: {answer:?}")))?;
    Ok(Answer { quota: number_of(limit, 1), left: number_of(status, 3), is_last })
}

/// A field of a message, of bytes or of another message.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).ok().filter(|length| *length < 128).unwrap();
    [&[number << 3 | 2, length], bytes].concat()
}

/// The fields of a message: each number with its bytes or its value.
fn fields(mut message: &[u8]) -> impl Iterator<Item = (u64, &[u8], u64)> {
    let varint = |message: &mut &[u8]| -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (first, rest) = message.split_first()?;
            *message = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                break;
            }
        }
        Some(value)
    };
    std::iter::from_fn(move || {
        let tag = varint(&mut message)?;
        let value = varint(&mut message)?;
        if tag & 7 == 0 {
            return Some((tag >> 3, &[][..], value));
        }
        let (bytes, rest) = message.split_at_checked(usize::try_from(value).unwrap())?;
        message = rest;
        Some((tag >> 3, bytes, 0))
    })
}

fn bytes_of(message: &[u8], number: u64) -> Option<&[u8]> {
    fields(message).find(|(field, ..)| *field == number).map(|(_, bytes, _)| bytes)
}

fn number_of(message: &[u8], number: u64) -> u64 {
    fields(message).find(|(field, ..)| *field == number).map_or(0, |(.., value)| value)
}

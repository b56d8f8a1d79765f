//! A small HTTP/1.1 client, and an application to put behind proxies.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The timeout to connect, and to read.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A response that was read to its end.
#[derive(Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The headers; their names are in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

impl Response {
    /// Returns the value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns the value of a header as a number.
    ///
    /// # Panics
    /// If there is no such header, or it is not a number.
    pub fn number(&self, name: &str) -> u64 {
        let value = self.header(name).unwrap_or_else(|| panic!("no {name} in {self:?}"));
        value.parse().unwrap_or_else(|_| panic!("{name}: {value}"))
    }
}

/// A connection that stays open between requests.
pub struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    /// Connects to an address.
    ///
    /// # Errors
    /// If nobody accepts the connection within 10 s.
    pub fn open(address: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream: BufReader::new(stream) })
    }

    /// Sends a request with header lines and a body, and reads the response.
    ///
    /// # Errors
    /// If the connection ends before the response does, or no part of it comes for 10 s.
    pub fn ask(&mut self, method: &str, path: &str, headers: &[&str], body: &str) -> io::Result<Response> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
        for header in headers {
            head.push_str(header);
            head.push_str("\r\n");
        }
        if !body.is_empty() {
            head.push_str(&format!("Content-Length: {}\r\nContent-Type: application/json\r\n", body.len()));
        }
        self.stream.get_mut().write_all(format!("{head}\r\n{body}").as_bytes())?;
        self.read()
    }

    fn read(&mut self) -> io::Result<Response> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("not a status line: {first:?}")))?;
        // A response that has begun must be whole.
        self.rest(status).map_err(|error| io::Error::other(format!("half a response: {error}")))
    }

    fn rest(&mut self, status: u16) -> io::Result<Response> {
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut response = Response { status, headers, body: String::new() };
        response.body = self.body(&response)?;
        Ok(response)
    }

    fn body(&mut self, response: &Response) -> io::Result<String> {
        let mut bytes = Vec::new();
        if response.status == 204 {
            return Ok(String::new());
        }
        if response.header("transfer-encoding") == Some("chunked") {
            loop {
                let length = u64::from_str_radix(self.line()?.trim(), 16).map_err(io::Error::other)?;
                self.stream.by_ref().take(length).read_to_end(&mut bytes)?;
                self.line()?;
                if length == 0 {
                    break;
                }
            }
        } else if let Some(length) = response.header("content-length") {
            let length = length.parse().map_err(io::Error::other)?;
            bytes.resize(length, 0);
            self.stream.read_exact(&mut bytes)?;
        } else {
            self.stream.read_to_end(&mut bytes)?;
        }
        String::from_utf8(bytes).map_err(io::Error::other)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

/// Sends a request on a new connection and returns the response.
///
/// # Panics
/// If there is none.
pub fn ask(address: SocketAddr, method: &str, path: &str, headers: &[&str], body: &str) -> Response {
    let asked = Connection::open(address).and_then(|mut connection| connection.ask(method, path, headers, body));
    asked.unwrap_or_else(|error| panic!("{method} http://{address}{path}: {error}"))
}

/// Sends a GET request on a new connection and returns the response.
///
/// # Panics
/// If there is none.
pub fn get(address: SocketAddr, path: &str) -> Response {
    ask(address, "GET", path, &[], "")
}

/// An application that sends the same response to every request, and counts the requests.
pub struct Application {
    /// The address that it listens on.
    pub address: SocketAddr,
    reached: Arc<AtomicUsize>,
}

impl Application {
    /// Starts an application on a thread that lives as long as the process.
    pub fn start() -> Application {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let reached = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&reached);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let counter = Arc::clone(&counter);
                std::thread::spawn(move || serve(stream?, &counter));
            }
        });
        Application { address, reached }
    }

    /// Returns the number of requests that reached it.
    pub fn reached(&self) -> usize {
        self.reached.load(Ordering::SeqCst)
    }
}

/// Serves one request after the other until the client closes the connection. The body for `/bytes/N` has N bytes.
fn serve(stream: TcpStream, reached: &AtomicUsize) -> io::Result<()> {
    let mut writer = stream.try_clone()?;
    let mut lines = BufReader::new(stream).lines();
    while let Some(first) = lines.next() {
        let first = first?;
        for header in lines.by_ref() {
            if header?.is_empty() {
                break;
            }
        }
        reached.fetch_add(1, Ordering::SeqCst);
        let path = first.split(' ').nth(1).unwrap_or_default();
        let length = path.strip_prefix("/bytes/").and_then(|length| length.parse().ok());
        let body = length.map_or_else(|| "application\n".to_owned(), |length| "x".repeat(length));
        let status = match path {
            "/forbidden" => "403 Forbidden",
            "/reports/2026" => "404 Not Found",
            _ => "200 OK",
        };
        let response = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        // In one piece: the second of two small ones would wait 40 ms for the client to confirm the first.
        writer.write_all(response.as_bytes())?;
    }
    Ok(())
}

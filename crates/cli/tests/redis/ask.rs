//! Those who ask, over each protocol: whether a user may do something once more.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use socket2::{Domain, Socket, Type};
use tidegate_testkit::http::{Connection, Response};
use tokio::runtime::Builder;

use crate::fleet::body;

/// Commands that are sent at once.
const PIPELINE: usize = 50;

/// What a caller is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Passed,
    /// It is over its limit.
    Denied,
    /// The store does not answer, and the rule denies then.
    Failed,
}

impl Said {
    pub(crate) fn of_http(response: &Response) -> Said {
        match response.status {
            200 => Said::Passed,
            429 => Said::Denied,
            503 => {
                let wait = response.number("retry-after");
                assert!((1..=60).contains(&wait), "{response:?}");
                Said::Failed
            }
            _ => panic!("nobody chose this answer: {response:?}"),
        }
    }
}

/// A caller over HTTP.
pub(crate) struct Http(Connection);

impl Http {
    pub(crate) fn open(address: SocketAddr) -> Http {
        Http(Connection::open(address).unwrap())
    }

    pub(crate) fn ask_with(&mut self, entries: &[(&str, &str)]) -> Said {
        Said::of_http(&self.0.ask("POST", "/v1/check", &[], &body(entries, "")).unwrap())
    }
}

/// A caller that speaks Redis' protocol.
pub(crate) struct Resp(BufReader<TcpStream>);

impl Resp {
    pub(crate) fn open(address: SocketAddr) -> Resp {
        Resp::over(TcpStream::connect(address).unwrap())
    }

    /// A caller at another address of this machine.
    pub(crate) fn open_from(source: Ipv4Addr, address: SocketAddr) -> Resp {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((source, 0)).into()).unwrap();
        socket.connect(&address.into()).unwrap();
        Resp::over(socket.into())
    }

    fn over(stream: TcpStream) -> Resp {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        Resp(BufReader::new(stream))
    }

    /// Sends a command many times and says how often it passed.
    pub(crate) fn passed(&mut self, command: &str, times: usize) -> u64 {
        let mut passed = 0;
        for start in (0..times).step_by(PIPELINE) {
            let count = PIPELINE.min(times - start);
            self.0.get_mut().write_all(format!("{command}\r\n").repeat(count).as_bytes()).unwrap();
            passed += (0..count).map(|_| u64::from(self.numbers()[0] == 0)).sum::<u64>();
        }
        passed
    }

    /// Sends commands at once, and says of each which limit its answer tells; 0 of a PING.
    pub(crate) fn limits(&mut self, commands: &[&str]) -> Vec<i64> {
        self.0.get_mut().write_all((commands.join("\r\n") + "\r\n").as_bytes()).unwrap();
        let limit = |command: &&str| match *command {
            "PING" => {
                assert_eq!(self.line(), "+PONG");
                0
            }
            _ => self.numbers()[1],
        };
        commands.iter().map(limit).collect()
    }

    /// The numbers of the answer to a command.
    pub(crate) fn told(&mut self, command: &str) -> Vec<i64> {
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
        self.numbers()
    }

    /// The first line of the answer to a command.
    pub(crate) fn said(&mut self, command: &str) -> String {
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
        self.line()
    }

    /// Takes one of so many permits; its name, or nothing if all are in use.
    pub(crate) fn acquire(&mut self, key: &str, limit: u64, lease_ms: u64) -> Option<String> {
        self.0.get_mut().write_all(format!("TIDEGATE.ACQUIRE {key} {limit} {lease_ms}\r\n").as_bytes()).unwrap();
        assert_eq!(self.line(), "*5");
        let [limited, _, in_use, _] = [(); 4].map(|()| self.line());
        if self.line() == "$-1" {
            assert_eq!((limited, in_use), (":1".to_owned(), format!(":{limit}")));
            return None;
        }
        assert_eq!(limited, ":0");
        Some(self.line())
    }

    /// Asks for this many permits, each of a key of its own, and counts those that were granted.
    pub(crate) fn acquired(&mut self, name: &str, permits: usize) -> usize {
        let mut acquired = 0;
        for start in (0..permits).step_by(PIPELINE) {
            let numbers = start..permits.min(start + PIPELINE);
            let lines = numbers.clone().map(|number| format!("TIDEGATE.ACQUIRE {name}-{number} 1 3600000\r\n"));
            self.0.get_mut().write_all(lines.collect::<String>().as_bytes()).unwrap();
            for _ in numbers {
                if self.line() == "*5" {
                    (0..6).for_each(|_| drop(self.line()));
                    acquired += 1;
                }
            }
        }
        acquired
    }

    /// Gives a permit back.
    pub(crate) fn release(&mut self, key: &str, id: &str) -> bool {
        self.0.get_mut().write_all(format!("TIDEGATE.RELEASE {key} {id}\r\n").as_bytes()).unwrap();
        self.line() == ":1"
    }

    /// The numbers of an answer, the first of which is 0 for what passes and 1 for what is denied.
    fn numbers(&mut self) -> Vec<i64> {
        let head = self.line();
        let count: usize =
            head.strip_prefix('*').and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{head}"));
        let mut numbers = Vec::new();
        for _ in 0..count {
            let line = self.line();
            match line.strip_prefix(':') {
                Some(number) => numbers.push(number.parse().unwrap()),
                // The name of a rule, which has a line for its length, or nothing.
                None if line.starts_with("$-") || line == "_" => {}
                None => drop(self.line()),
            }
        }
        numbers
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).unwrap() > 0, "the server closed");
        line.trim_end().to_owned()
    }
}

/// How often a user passes over gRPC, of so many times.
pub(crate) fn passed_grpc(address: SocketAddr, user: &str, times: usize) -> u64 {
    let entry = Entry { key: "user".to_owned(), value: user.to_owned() };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
    let request = RateLimitRequest { domain: "api".to_owned(), descriptors: vec![descriptor], hits_addend: 1 };
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = RateLimitServiceClient::connect(format!("http://{address}")).await.unwrap();
        let mut passed = 0;
        for _ in 0..times {
            let response = client.should_rate_limit(request.clone()).await.unwrap().into_inner();
            passed += u64::from(response.overall_code == 1);
        }
        passed
    })
}

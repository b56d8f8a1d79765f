//! One caller that takes all permits it can get, and others who need some.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use tidegate_testkit::http;

use crate::crowd::connect;
use crate::load::{PLENTY, Server, Stop, milliseconds};
use crate::report::{Progress, Watch};

/// Permits that one address may hold: a quarter of all.
const SHARE: u64 = 65_536;
/// Callers beside the one that hoards, each at an address of its own, and the permits that each of them needs.
const OTHERS: usize = 6;
const EACH: u64 = 2_000;
/// Commands that are sent at once.
const PIPELINE: u64 = 500;

/// A caller over the protocol of Redis, at one of several addresses.
struct Holder {
    stream: BufReader<TcpStream>,
    key: String,
}

impl Holder {
    fn open(server: &Server, number: usize) -> Holder {
        let stream = connect(server.resp, number);
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Holder { stream: BufReader::new(stream), key: format!("pool{number}") }
    }

    /// Asks for permits of an hour, and returns how many it got, and what was said instead of the last one that it did not get.
    fn acquire(&mut self, count: u64) -> (u64, Option<String>) {
        let command = format!("TIDEGATE.ACQUIRE {} 1000000 3600000\r\n", self.key);
        let (mut acquired, mut refusal) = (0, None);
        let mut left = count;
        while left > 0 {
            let pipeline = left.min(PIPELINE);
            self.stream.get_mut().write_all(command.repeat(usize::try_from(pipeline).unwrap()).as_bytes()).unwrap();
            for _ in 0..pipeline {
                match self.reply() {
                    Ok(()) => acquired += 1,
                    Err(error) => refusal = Some(error),
                }
            }
            left -= pipeline;
        }
        (acquired, refusal)
    }

    /// Reads one reply. An error is that of the server.
    fn reply(&mut self) -> Result<(), String> {
        let first = self.line();
        if let Some(error) = first.strip_prefix("-ERR ") {
            return Err(error.to_owned());
        }
        // Four numbers, and the name of the permit behind its length.
        let rest: [String; 6] = std::array::from_fn(|_| self.line());
        assert_eq!((first.as_str(), rest[0].as_str()), ("*5", ":0"), "{rest:?}");
        Ok(())
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.stream.read_line(&mut line).unwrap() > 0, "closed");
        line.trim_end().to_owned()
    }
}

pub(crate) fn permits_of_one_caller_leave_those_of_others(progress: &mut Progress) {
    let server = Server::start(PLENTY, &[]);
    let (mut hoarder, watch) = (Holder::open(&server, 0), Watch::start());
    let (mut held, mut asked, mut refusal) = (0, 0, None);
    while asked < 2 * SHARE {
        let (acquired, refused) = hoarder.acquire(10_000);
        (held, asked, refusal) = (held + acquired, asked + 10_000, refused);
    }
    progress.figure("permits that one address asked for", asked, "");
    progress.figure("permits that it holds", held, &format!("≤ {SHARE}, a quarter"));
    progress.figure("time to take them", format!("{:.1} s", watch.elapsed().as_secs_f64()), "");
    let refusal = refusal.unwrap_or_default();
    progress.log(&refusal);
    assert!(held <= SHARE && held >= SHARE - SHARE / 10, "{held}");
    assert!(refusal.starts_with("permits: this address already holds"), "{refusal}");
    // It goes on asking meanwhile.
    let stop = Stop::default();
    let (got, slowest) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.is_now() {
                let (more, _) = hoarder.acquire(PIPELINE);
                assert_eq!(more, 0, "it holds more than its share");
            }
        });
        let _at_the_end = stop.at_the_end();
        others(&server)
    });
    progress.figure("permits of other addresses", got, &format!("{}, as many as asked for", OTHERS as u64 * EACH));
    progress.figure("the slowest permit over HTTP meanwhile", milliseconds(slowest), "≤ 1 s");
    assert_eq!(got, OTHERS as u64 * EACH);
    assert!(slowest < Duration::from_secs(1));
}

/// What other callers get, and how long the slowest answer to one over HTTP took.
fn others(server: &Server) -> (u64, Duration) {
    let got = (1..=OTHERS).map(|number| Holder::open(server, number).acquire(EACH).0).sum();
    let mut slowest = Duration::ZERO;
    for _ in 0..200 {
        let watch = Watch::start();
        let body = r#"{"key":"jobs","limit":1000,"lease":"1m"}"#;
        let answer = http::ask(server.http, "POST", "/v1/permits", &[], body);
        assert_eq!(answer.status, 201, "{answer:?}");
        slowest = slowest.max(watch.elapsed());
    }
    (got, slowest)
}

//! Clients that are turned away: what the log and the metrics tell of them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustix::process::Signal;
use tempfile::TempDir;
use tidegate_testkit::http::ask;
use tidegate_testkit::process::directory;
use tidegate_testkit::tidegate::Tidegate;
use tidegate_testkit::wait::eventually;

/// Writes a certificate that is valid until the first of January of this year, and its key.
fn write_certificate(directory: &Path, last_year: i32) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = date_time_ymd(last_year, 1, 1);
    std::fs::write(directory.join("server.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(directory.join("server.key"), key.serialize_pem()).unwrap();
}

/// A server that speaks TLS to Envoy, and the directory of its certificate.
fn start_tls(last_year: i32) -> (Tidegate, TempDir) {
    let files = directory();
    write_certificate(files.path(), last_year);
    let path = |name: &str| files.path().join(name).to_str().unwrap().to_owned();
    let (certificate, key) = (path("server.pem"), path("server.key"));
    (Tidegate::start(&["--grpc-tls-cert", &certificate, "--grpc-tls-key", &key, "--drain-delay", "0"]), files)
}

/// Says this and reads until the other end has had enough.
fn say(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// How often the answer has this text.
fn count(answer: &[u8], text: &str) -> u32 {
    String::from_utf8_lossy(answer).matches(text).count().try_into().unwrap()
}

fn lines_of(log: &str, said: &str) -> Vec<String> {
    log.lines().filter(|line| line.contains(said)).map(str::to_owned).collect()
}

#[test]
fn tls_handshakes_that_fail_are_counted_and_some_are_logged() {
    let (tidegate, _files) = start_tls(4000);
    // A load balancer that only looks whether somebody listens.
    drop(TcpStream::connect(tidegate.grpc).unwrap());
    for _ in 0..60 {
        say(tidegate.grpc, b"GET / HTTP/1.0\r\n\r\n");
    }
    let count = || tidegate.metric("tidegate_tls_failures_total{listener=\"grpc\"}");
    assert!(eventually(|| count() == Some(60.0)), "{:?}", count());
    let log = tidegate.process.log();
    let told = lines_of(&log, "TLS handshake failed");
    assert!((1..60).contains(&told.len()), "{log}");
    assert!(told[0].contains(" WARN ") && told[0].contains("peer=127.0.0.1:"), "{log}");
    assert!(told[0].contains("reason=received corrupt message"), "{log}");
}

#[test]
fn wrong_passwords_are_few_are_counted_and_some_are_logged_without_them() {
    let tidegate = Tidegate::start(&["--password", "open-sesame"]);
    // Neither a right one, nor none at all, is wrong.
    let right = say(tidegate.resp, b"PING\r\nAUTH open-sesame\r\nQUIT\r\n");
    assert_eq!(count(&right, "+OK\r\n"), 2);
    let (mut wrong, mut too_many) = (0, 0);
    for _ in 0..60 {
        let answer =
            say(tidegate.resp, b"AUTH guess-one\r\nAUTH guess-two x\r\nHELLO 3 AUTH default guess-three\r\nQUIT\r\n");
        wrong += count(&answer, "-WRONGPASS invalid username-password pair");
        too_many += count(&answer, "-WRONGPASS too many wrong passwords from this address; try again in ");
    }
    // Ten at once, and one more every six seconds, of which this takes few.
    assert!((10..=20).contains(&wrong), "{wrong}");
    assert!((40..=57).contains(&too_many), "{too_many}");
    let counted = tidegate.metric("tidegate_auth_failures_total");
    assert_eq!(counted, Some(f64::from(wrong + too_many)));
    let log = tidegate.process.log();
    let told = lines_of(&log, "wrong password");
    assert!((1..60).contains(&told.len()), "{log}");
    assert!(told[0].contains(" WARN ") && told[0].contains("peer=127.0.0.1:"), "{log}");
    assert!(!log.contains("guess") && !log.contains("sesame"), "{log}");
}

#[test]
fn a_server_may_take_no_reports() {
    let report = r#"{"domain":"web","descriptors":[{}],"response":{"status":401}}"#;
    let tidegate = Tidegate::start(&["--no-reports"]);
    let answer = ask(tidegate.http, "POST", "/v1/report", &[], report);
    assert_eq!(answer.status, 404);
    assert!(answer.body.contains("reports are switched off"), "{}", answer.body);
}

#[test]
fn certificates_that_run_out_are_renewed_or_are_refused_are_told_of() {
    let (mut tidegate, files) = start_tls(2025);
    let said = tidegate.process.path("stderr");
    let log = || std::fs::read_to_string(&said).unwrap_or_default();
    let told = lines_of(&log(), "certificate");
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains(" INFO ") && told[0].contains("certificates loaded"), "{told:?}");
    assert!(told[1].contains(" WARN ") && told[1].contains("the certificate has expired"), "{told:?}");
    assert!(told.iter().all(|line| line.contains("end=2025-01-01T00:00:00Z")), "{told:?}");
    assert_eq!(tidegate.metric("tidegate_certificate_end_seconds{listener=\"grpc\"}"), Some(1_735_689_600.0));

    write_certificate(files.path(), 4000);
    tidegate.process.signal(Signal::HUP);
    tidegate.process.wait_until("the renewal", || log().contains("certificates loaded listener=\"grpc\" file="));
    tidegate.process.wait_until("its end", || log().contains("end=4000-01-01T00:00:00Z"));
    assert_eq!(lines_of(&log(), " WARN ").iter().filter(|line| line.contains("certificate")).count(), 1, "{}", log());

    std::fs::write(files.path().join("server.key"), "").unwrap();
    tidegate.process.signal(Signal::HUP);
    tidegate.process.wait_until("the refusal", || log().contains("certificates refused: the old ones stay in use"));
    let count = |result: &str| {
        tidegate.metric(&format!("tidegate_certificate_loads_total{{listener=\"grpc\",result=\"{result}\"}}"))
    };
    assert_eq!((count("success"), count("error")), (Some(2.0), Some(1.0)));
    assert_eq!(tidegate.metric("tidegate_certificate_end_seconds{listener=\"grpc\"}"), Some(64_060_588_800.0));
}

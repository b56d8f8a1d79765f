//! Large pages about many rules, and clients that request them and do not read.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tidegate_testkit::http::get;
use tidegate_testkit::tidegate::Tidegate;

use crate::load::{directory, milliseconds, resident};
use crate::report::{Progress, Watch};

const RULES: usize = 5_000;
const READERS: usize = 300;
/// Largest growth of the server's memory, in megabytes.
const GROWTH: f64 = 100.0;

pub(crate) fn slow_readers_share_pages(progress: &mut Progress) {
    let place = directory();
    let path = place.path().join("many.yaml");
    let rules: String = (0..RULES).map(|number| format!("    - {{name: rule-{number}, limit: 1/s}}\n")).collect();
    std::fs::write(&path, format!("domains:\n  api:\n    rules:\n{rules}")).unwrap();
    let server = Tidegate::with_config(&path, &[]);
    let page = get(server.http, "/metrics").body.len();
    progress.figure("bytes per page", page, "");
    let before = resident(&server);
    let (mut readers, mut most) = (Vec::new(), 0.0_f64);
    // Spread over some seconds, so that they do not all request at once.
    for number in 0..READERS {
        let mut stream = TcpStream::connect(server.http).unwrap();
        let path = ["/metrics", "/v1/rules", "/rlconfig"][number % 3];
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).unwrap();
        readers.push(stream);
        most = most.max(resident(&server));
        std::thread::sleep(Duration::from_millis(20));
    }
    let watch = Watch::start();
    let answer = get(server.http, "/metrics");
    assert!(answer.status == 200 && answer.body.len() >= page, "{} bytes", answer.body.len());
    progress.figure("time for a page of another client meanwhile", milliseconds(watch.elapsed()), "≤ 2 s");
    assert!(watch.elapsed() < Duration::from_secs(2));
    most = most.max(resident(&server));
    progress.figure("memory growth; slow readers", format!("{:.1} MB; {READERS}", most - before), "≤ 100 MB");
    assert!(most - before <= GROWTH, "{} MB", most - before);
    progress.log("waiting until slow readers are disconnected");
    let watch = Watch::start();
    let open = || server.metric("tidegate_connections{listener=\"http\"}").unwrap();
    let mut left = open();
    // Short pages fit into the buffers of the system, so readers of short pages are idle, not slow.
    while left > READERS as f64 * 2.0 / 3.0 + 2.0 && watch.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(500));
        left = open();
    }
    progress.figure("slow readers are disconnected within", milliseconds(watch.elapsed()), "≤ 16 s");
    assert!(watch.elapsed() < Duration::from_secs(16), "{left} are left");
    // Bytes in the buffers of the system still arrive.
    let _ = readers[0].read(&mut [0; 1024]);
}

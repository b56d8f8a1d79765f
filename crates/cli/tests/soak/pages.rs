//! Pages about many rules, and readers that ask for them and do not read.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tidegate_testkit::http::get;
use tidegate_testkit::tidegate::Tidegate;

use crate::load::{directory, milliseconds, resident};
use crate::report::{Told, Watch};

const RULES: usize = 5_000;
const READERS: usize = 300;
/// Megabytes that the server may grow by.
const GROWTH: f64 = 100.0;

pub(crate) fn slow_readers_share_pages(told: &mut Told) {
    let place = directory();
    let path = place.path().join("many.yaml");
    let rules: String = (0..RULES).map(|number| format!("    - {{name: rule-{number}, limit: 1/s}}\n")).collect();
    std::fs::write(&path, format!("domains:\n  api:\n    rules:\n{rules}")).unwrap();
    let server = Tidegate::with_config(&path, &[]);
    let page = get(server.http, "/metrics").body.len();
    told.figure("bytes of a page", page, "");
    let before = resident(&server);
    let (mut readers, mut most) = (Vec::new(), 0.0_f64);
    // They come over some seconds, so that not all of them ask at once.
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
    told.figure("a page for others meanwhile takes", milliseconds(watch.elapsed()), "≤ 2 s");
    assert!(watch.elapsed() < Duration::from_secs(2));
    most = most.max(resident(&server));
    told.figure("growth with so many readers", format!("{:.1} MB; {READERS}", most - before), "≤ 100 MB");
    assert!(most - before <= GROWTH, "{} MB", most - before);
    told.say("until they are cut off");
    let watch = Watch::start();
    let open = || server.metric("tidegate_connections{listener=\"http\"}").unwrap();
    let mut left = open();
    // Short pages are with the system whole: who has one of them only waits for the next request.
    while left > READERS as f64 * 2.0 / 3.0 + 2.0 && watch.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(500));
        left = open();
    }
    told.figure("readers of long pages are cut off within", milliseconds(watch.elapsed()), "≤ 16 s");
    assert!(watch.elapsed() < Duration::from_secs(16), "{left} are left");
    // What the system took for them is theirs.
    let _ = readers[0].read(&mut [0; 1024]);
}

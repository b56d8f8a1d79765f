//! Clients that keep their connections while the server stops: none of them loses a request.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use tidegate_testkit::http::get;
use tidegate_testkit::wait::eventually;

use crate::client::{Client, Protocol};
use crate::load::{PLENTY, Server, milliseconds};
use crate::report::{Progress, Watch};

/// How often the server is stopped.
const STOPS: usize = 8;
/// Clients of each stop, over HTTP and over gRPC.
const CLIENTS: [(Protocol, usize); 2] = [(Protocol::Http, 80), (Protocol::Grpc, 20)];

/// What became of the requests around all stops.
#[derive(Default)]
struct Fates {
    answered: AtomicU64,
    /// Requests on a connection that was open, and that were not answered.
    lost: AtomicU64,
    /// Connections that came too late to be accepted.
    late: AtomicU64,
}

/// Asks on connections that are kept until the server says that it was the last request, some pausing in between, and goes
/// on with a new connection until nobody listens.
fn ask_until_gone(server: &Server, protocol: Protocol, pause: Duration, fates: &Fates, is_stopping: &AtomicBool) {
    while let Ok(mut client) = Client::open(protocol, protocol.address(server)) {
        for number in 0_u64.. {
            match client.ask("drain") {
                Ok(answer) => {
                    fates.answered.fetch_add(1, Ordering::Relaxed);
                    if answer.is_last {
                        break;
                    }
                }
                // A server that goes away says which calls it has not looked at: these are sent again elsewhere.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => break,
                Err(error) => {
                    let is_late = number == 0 && is_stopping.load(Ordering::SeqCst);
                    let fate = if is_late { &fates.late } else { &fates.lost };
                    if !is_late {
                        println!("{protocol:?}: request {number} was lost: {error}");
                    }
                    fate.fetch_add(1, Ordering::Relaxed);
                    break;
                }
            }
            std::thread::sleep(pause);
        }
    }
}

pub(crate) fn clients_that_keep_their_connections_lose_nothing(progress: &mut Progress) {
    let (fates, mut slowest) = (Fates::default(), Duration::ZERO);
    for number in 1..=STOPS {
        let mut server = Server::start(PLENTY, &["--drain-delay", "1"]);
        let is_stopping = AtomicBool::new(false);
        let watch = std::thread::scope(|scope| {
            for (protocol, clients) in CLIENTS {
                for client in 0..clients {
                    let (server, fates, is_stopping) = (&server, &fates, &is_stopping);
                    let pause = Duration::from_millis(client as u64 % 8);
                    scope.spawn(move || ask_until_gone(server, protocol, pause, fates, is_stopping));
                }
            }
            std::thread::sleep(Duration::from_millis(500));
            let watch = Watch::start();
            server.process.signal(Signal::TERM);
            assert!(eventually(|| get(server.http, "/readyz").status == 503), "it stays ready");
            is_stopping.store(true, Ordering::SeqCst);
            watch
        });
        assert!(server.tidegate.process.ended().success());
        slowest = slowest.max(watch.elapsed());
        progress.log(&format!("stop {number}: {} answers so far", fates.answered.load(Ordering::Relaxed)));
    }
    let [answered, lost, late] = [&fates.answered, &fates.lost, &fates.late].map(|fate| fate.load(Ordering::Relaxed));
    let clients: usize = CLIENTS.iter().map(|(_, clients)| clients).sum();
    progress.figure("stops; clients of each that keep their connections", format!("{STOPS}; {clients}"), "");
    progress.figure("requests that were answered", answered, "");
    progress.figure("requests that were lost", lost, "0");
    progress.figure("connections too late to be accepted", late, "");
    progress.figure("the slowest stop, with a drain delay of 1 s", milliseconds(slowest), "≤ 21 s");
    assert_eq!(lost, 0);
    assert!(answered > 1_000 && slowest < Duration::from_secs(21), "{answered}, {slowest:?}");
}

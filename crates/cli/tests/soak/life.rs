//! The life of a server: reloads, bad files, stops, and memory over one minute.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use tidegate_testkit::http::get;
use tidegate_testkit::wait::eventually;

use crate::client::{Answer, Client, PROTOCOLS, Protocol, rules};
use crate::load::{PLENTY, Server, Stop, directory, hammer, milliseconds, resident};
use crate::report::{Progress, Watch};

const LOADS: &str = "ratelimit_service_config_load_success";
const REFUSALS: &str = "ratelimit_service_config_load_error";

/// Replaces a file atomically, as editors and deployments do.
fn write(path: &Path, text: &[u8]) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}

/// Makes the server reload, waits until this metric rises, and returns how long that took.
fn reload(server: &Server, metric: &str) -> Duration {
    let count = || server.metric(metric).unwrap_or_else(|| panic!("no {metric}"));
    let before = count();
    let watch = Watch::start();
    server.process.signal(Signal::HUP);
    assert!(eventually(|| count() > before), "{metric} stays {before}");
    watch.elapsed()
}

/// Sends requests over every protocol without a pause while an action runs, and returns the numbers of answers.
fn under_load(server: &Server, users: u64, check: impl Fn(Answer) + Sync, act: impl FnOnce()) -> [u64; 3] {
    let (stop, asked) = (Stop::default(), [const { AtomicU64::new(0) }; 3]);
    std::thread::scope(|scope| {
        let (stop, check) = (&stop, &check);
        for (protocol, asked) in PROTOCOLS.into_iter().zip(&asked) {
            scope.spawn(move || hammer(server, protocol, users, stop, asked, check));
        }
        let _at_the_end = stop.at_the_end();
        act();
    });
    asked.map(AtomicU64::into_inner)
}

pub(crate) fn a_hundred_reloads_lose_nothing(progress: &mut Progress) {
    let server = Server::start(100, &["--store", "memory:4000000"]);
    // A new user has the whole limit, by the old or the new rules.
    let check = |answer: Answer| {
        let Answer { quota, left, .. } = answer;
        assert!([100, 200].contains(&quota) && left == quota - 1, "{answer:?}");
    };
    let mut slowest = Duration::ZERO;
    let asked = under_load(&server, u64::MAX, check, || {
        for number in 0..100 {
            write(&server.path("rules.yaml"), rules(if number % 2 == 0 { 200 } else { 100 }).as_bytes());
            slowest = slowest.max(reload(&server, LOADS));
            // Many requests are answered by each configuration.
            std::thread::sleep(Duration::from_millis(50));
            if number % 25 == 24 {
                progress.log(&format!("{} reloads", number + 1));
            }
        }
    });
    let [http, grpc, resp] = asked;
    progress.figure("reloads", server.metric(LOADS).unwrap() - 1.0, "≥ 100");
    progress.figure(
        "answers, all by the old or the new rules",
        format!("{http} http, {grpc} grpc, {resp} resp"),
        "all",
    );
    progress.figure("slowest reload", milliseconds(slowest), "");
    assert!(asked.iter().all(|asked| *asked > 1_000), "{asked:?}");
    assert_eq!(server.metric(REFUSALS), Some(0.0));
}

/// Invalid files, each for a different reason.
fn bad_files() -> Vec<(&'static str, Vec<u8>)> {
    let rule = |rule: &str| format!("domains: {{api: {{rules: [{rule}]}}}}\n").into_bytes();
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..20 {
        let last = format!("*a{}, ", level - 1).repeat(10);
        bomb += &format!("a{level}: &a{level} [{last}]\n");
    }
    let long = format!("domains: {{api: {{rules: [{}]}}}}\n", "{name: x, limit: 1/s}, ".repeat(10 << 20 >> 5));
    vec![
        ("blank fields", rule("{name: , key: , limit: }")),
        ("blank domains", b"domains: {api: {rules: [{}]}, other: {rules: }, : }\n".to_vec()),
        ("nested aliases", bomb.into_bytes()),
        ("ten megabytes", [long.as_bytes(), &vec![b' '; 3 << 20]].concat()),
        ("nested lists", b"[".repeat(100_000)),
        ("not UTF-8", (0..=255).cycle().take(100_000).collect()),
        ("a limit that overflows", rule("{name: x, limit: 99999999999999999999999999/s}")),
        ("half a file", rules(100).as_bytes()[..40].to_vec()),
    ]
}

pub(crate) fn bad_files_change_nothing(progress: &mut Progress) {
    let server = Server::start(PLENTY, &[]);
    let before = resident(&server);
    let path = server.path("rules.yaml");
    let (mut most, mut rounds, mut slowest) = (0.0_f64, 0, (Duration::ZERO, ""));
    let check = |answer: Answer| assert_eq!(answer.quota, PLENTY, "the old rules stay");
    let asked = under_load(&server, 10_000, check, || {
        let watch = Watch::start();
        // Fewer rounds on a busy machine.
        for round in (0..10).take_while(|_| watch.elapsed() < Duration::from_secs(45)) {
            for (name, text) in bad_files() {
                write(&path, &text);
                let took = reload(&server, REFUSALS);
                slowest = slowest.max((took, name));
                rounds += 1;
            }
            // A link to a missing file, and then to itself, as after a failed swap.
            for target in ["missing.yaml", "rules.yaml"] {
                std::fs::remove_file(&path).unwrap();
                symlink(target, &path).unwrap();
                slowest = slowest.max((reload(&server, REFUSALS), target));
                rounds += 1;
            }
            most = most.max(resident(&server));
            if round % 3 == 2 {
                progress.log(&format!("{rounds} bad files, {most:.1} MB"));
            }
        }
    });
    progress.figure("bad files, all rejected and counted", rounds, "");
    progress.figure("answers meanwhile, by the old rules", asked.iter().sum::<u64>(), "all");
    let (took, name) = slowest;
    progress.figure("slowest refusal under full load", format!("{} ({name})", milliseconds(took)), "");
    progress.figure("memory before / maximum", format!("{before:.1} / {most:.1} MB"), "growth ≤ 100 MB");
    assert!(most - before < 100.0, "{most} MB");
    assert!(took < Duration::from_secs(3), "{name}: {took:?}");
    let log = server.process.log();
    assert!(log.contains("the old one stays") && !log.contains("panicked"), "{log}");
    // Without load, a refusal is quick.
    let mut slowest = (Duration::ZERO, "");
    for (name, text) in bad_files() {
        write(&path, &text);
        slowest = slowest.max((reload(&server, REFUSALS), name));
    }
    progress.figure("slowest refusal without load", format!("{} ({})", milliseconds(slowest.0), slowest.1), "< 100 ms");
    assert!(slowest.0 < Duration::from_millis(250), "{slowest:?}");
    reload_good(&server);
}

/// Makes sure that a valid file is loaded afterwards.
fn reload_good(server: &Server) {
    write(&server.path("rules.yaml"), rules(7).as_bytes());
    reload(server, LOADS);
    let mut client = Client::open(Protocol::Http, server.http).unwrap();
    assert_eq!(client.ask("new").unwrap().quota, 7);
}

/// The fate of requests around a stop.
#[derive(Default)]
struct Stopped {
    answered: AtomicU64,
    /// Requests on a connection that the server had just closed: it never received them.
    unseen: AtomicU64,
    /// Connections that were too late to be accepted.
    late: AtomicU64,
    is_stopping: AtomicBool,
}

/// Sends requests until the server is gone. An incomplete answer, or none before the stop signal, is a lost request.
fn ask_until_gone(server: &Server, protocol: Protocol, stopped: &Stopped) {
    let is_stopping = || stopped.is_stopping.load(Ordering::SeqCst);
    while let Ok(mut client) = Client::open(protocol, protocol.address(server)) {
        for number in 0_u64.. {
            match client.ask(protocol.name()) {
                Ok(answer) => {
                    stopped.answered.fetch_add(1, Ordering::Relaxed);
                    if answer.is_last {
                        break;
                    }
                }
                Err(error) => {
                    assert!(is_stopping(), "{protocol:?}: a request failed while it was ready: {error}");
                    assert_ne!(error.kind(), std::io::ErrorKind::Other, "{protocol:?}: {error}");
                    let count = if number == 0 { &stopped.late } else { &stopped.unseen };
                    count.fetch_add(1, Ordering::Relaxed);
                    break;
                }
            }
        }
    }
    assert!(is_stopping(), "{protocol:?}: gone before the stop signal");
}

/// A directory, and the path of a decision log in it.
fn decision_log() -> (tempfile::TempDir, String) {
    let directory = directory();
    let path = directory.path().join("decisions.jsonl").to_str().unwrap().to_owned();
    (directory, path)
}

pub(crate) fn ten_stops_lose_nothing(progress: &mut Progress) {
    let (mut answered, mut unseen, mut late, mut slowest) = (0, 0, 0, Duration::ZERO);
    for number in 1..=10 {
        let (directory, decisions) = decision_log();
        let mut server = Server::start(PLENTY, &["--drain-delay", "1", "--decision-log", &decisions]);
        let stopped = Stopped::default();
        let watch = std::thread::scope(|scope| {
            for protocol in PROTOCOLS.into_iter().chain(PROTOCOLS) {
                let (server, stopped) = (&server, &stopped);
                scope.spawn(move || ask_until_gone(server, protocol, stopped));
            }
            std::thread::sleep(Duration::from_millis(500));
            let watch = Watch::start();
            server.process.signal(Signal::TERM);
            assert!(eventually(|| get(server.http, "/readyz").status == 503), "the server stays ready");
            stopped.is_stopping.store(true, Ordering::SeqCst);
            watch
        });
        assert!(server.tidegate.process.ended().success());
        slowest = slowest.max(watch.elapsed());
        let answers = stopped.answered.into_inner();
        // Each decision was answered: no failed request was charged.
        let decided = std::fs::read_to_string(&decisions).unwrap().lines().count();
        assert_eq!(u64::try_from(decided).unwrap(), answers, "stop {number}: decisions and answers");
        drop(directory);
        answered += answers;
        unseen += stopped.unseen.into_inner();
        late += stopped.late.into_inner();
        progress.log(&format!("stop {number}: {answered} answers so far"));
    }
    progress.figure("answers around ten stops", answered, "= decisions");
    progress.figure("requests on a connection just closed", unseen, "≤ 6 per stop");
    progress.figure("connections too late to be accepted", late, "");
    progress.figure("slowest stop, with a drain delay of 1 s", format!("{:.1} s", slowest.as_secs_f64()), "≤ 21 s");
    assert!(unseen <= 60 && slowest < Duration::from_secs(21), "{unseen}, {slowest:?}");
}

pub(crate) fn memory_is_steady_over_a_minute(progress: &mut Progress) {
    let server = Server::start(PLENTY, &[]);
    let mut samples = Vec::new();
    let asked = under_load(
        &server,
        20_000,
        |_| {},
        || {
            for second in 1..=60 {
                std::thread::sleep(Duration::from_secs(1));
                samples.push(resident(&server));
                if second % 10 == 0 {
                    progress.log(&format!("{second} s, {:.1} MB", resident(&server)));
                }
            }
        },
    );
    let most = |samples: &[f64]| samples.iter().copied().fold(0.0, f64::max);
    let (middle, end) = (most(&samples[20..40]), most(&samples[40..]));
    let [http, grpc, resp] = asked;
    progress.figure("answers in 60 s", format!("{http} http, {grpc} grpc, {resp} resp"), "all");
    progress.figure("peak memory, second / last 20 s", format!("{middle:.1} / {end:.1} MB"), "growth ≤ 4 MB");
    assert!(end - middle <= 4.0, "{middle} to {end} MB");
}

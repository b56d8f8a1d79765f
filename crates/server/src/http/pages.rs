//! Pages about all rules, which are long where rules are many: they are written aside, one at a time, and readers who
//! dawdle hold the same few of them.
//!
//! Those who wait while a page is written share the next one for as long as somebody reads it, which is as fresh as if each
//! had one written. When readers pile up, newcomers within [`PAGE_SHARED`] get the newest page; and who has not taken a page
//! after [`PAGE_READ`] is cut off (`pulse.rs`). So there are never more than some ten of a kind, whatever the number of
//! connections, and nobody is refused.
//!
//! [`PAGE_READ`]: crate::bounds::PAGE_READ

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use http::StatusCode;
use tidegate_core::Time;
use tokio::sync::Semaphore;

use super::answer::{Answered, Failure, JSON, TEXT, reply};
use super::pulse::{Pulse, Reading};
use super::{metrics, rules};
use crate::bounds::{PAGE_SHARED, PAGES_FRESH};
use crate::rls;
use crate::service::Service;

/// Which page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// What was counted, for Prometheus.
    Metrics,
    /// All rules with what they counted.
    Rules,
    /// All limits as the reference server shows them.
    Limits,
}

impl Kind {
    fn content_type(self) -> &'static str {
        match self {
            Kind::Metrics => metrics::KIND,
            Kind::Rules => JSON,
            Kind::Limits => TEXT,
        }
    }

    fn write(self, service: &Service) -> Vec<u8> {
        match self {
            Kind::Metrics => metrics::page(service).into_bytes(),
            Kind::Rules => rules::page(service),
            Kind::Limits => rls::limits::page(service).into_bytes(),
        }
    }
}

/// The pages of a server, over all its threads.
#[derive(Debug)]
pub(crate) struct Pages {
    /// Who may write one.
    turn: Arc<Semaphore>,
    shelves: [Shelf; 3],
}

impl Default for Pages {
    fn default() -> Pages {
        Pages { turn: Arc::new(Semaphore::new(1)), shelves: Default::default() }
    }
}

/// The pages of one kind.
#[derive(Debug, Default)]
struct Shelf {
    state: Mutex<State>,
    /// How many are being read.
    held: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct State {
    /// How many were begun so far.
    begun: u64,
    /// The number of the newest, when it was begun, and itself while somebody reads it.
    number: u64,
    made: Time,
    newest: Weak<Page>,
}

/// A page, for as long as somebody reads it.
#[derive(Debug)]
struct Page {
    bytes: Vec<u8>,
    held: Arc<AtomicUsize>,
}

impl Drop for Page {
    fn drop(&mut self) {
        self.held.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A page in the hands of one connection. It is let go when its last byte is with the system.
struct Copy {
    page: Arc<Page>,
    _reading: Reading,
}

impl AsRef<[u8]> for Copy {
    fn as_ref(&self) -> &[u8] {
        &self.page.bytes
    }
}

impl Shelf {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many pages were begun: any later one is fresh for who asks now.
    fn begun(&self) -> u64 {
        self.state().begun
    }

    /// The number of a page that is written now.
    fn begin(&self) -> u64 {
        let mut state = self.state();
        state.begun += 1;
        state.begun
    }

    fn put(&self, bytes: Vec<u8>, number: u64, made: Time) -> Arc<Page> {
        self.held.fetch_add(1, Ordering::Relaxed);
        let page = Arc::new(Page { bytes, held: Arc::clone(&self.held) });
        let mut state = self.state();
        (state.number, state.made, state.newest) = (number, made, Arc::downgrade(&page));
        page
    }

    /// The newest page, if it was begun after this many, or so many are being read that it has to do.
    fn share(&self, begun: u64, now: Time) -> Option<Arc<Page>> {
        let state = self.state();
        let are_many = self.held.load(Ordering::Relaxed) >= PAGES_FRESH && now <= state.made.plus(PAGE_SHARED);
        if state.number > begun || are_many { state.newest.upgrade() } else { None }
    }
}

/// Does work that takes long enough for decisions to wait, on a thread of its own, one after the other. `None` if it
/// panicked.
pub(super) async fn aside<T: Send + 'static>(
    service: &Arc<Service>,
    work: impl FnOnce(&Service) -> T + Send + 'static,
) -> Option<T> {
    let turn = Arc::clone(&service.pages.turn).acquire_owned().await.ok()?;
    let service = Arc::clone(service);
    let done = tokio::task::spawn_blocking(move || {
        // Until it is done, also if whoever asked for it is gone.
        let _turn = turn;
        work(&service)
    });
    done.await.ok()
}

/// Answers with a page.
pub(super) async fn get(service: &Arc<Service>, kind: Kind, pulse: &Arc<Pulse>) -> Answered {
    let page = find(service, kind, move |service| kind.write(service)).await;
    let failed = || Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "page: internal error; see the log");
    let copy = Copy { page: page.ok_or_else(failed)?, _reading: pulse.reading() };
    Ok(reply(StatusCode::OK, kind.content_type(), Bytes::from_owner(copy)))
}

/// A page to read. It is written on a thread of its own, one at a time: with many rules that takes long enough for
/// decisions to wait. None if that panicked.
async fn find(
    service: &Arc<Service>,
    kind: Kind,
    write: impl FnOnce(&Service) -> Vec<u8> + Send + 'static,
) -> Option<Arc<Page>> {
    let shelf = service.pages.shelves.get(kind as usize)?;
    let begun = shelf.begun();
    let turn = Arc::clone(&service.pages.turn).acquire_owned().await.ok()?;
    let now = service.engine.clock().now();
    if let Some(page) = shelf.share(begun, now) {
        return Some(page);
    }
    let service = Arc::clone(service);
    let written = tokio::task::spawn_blocking(move || {
        // Until it is written, also if whoever asked for it is gone: or asking and going would have many written at a time.
        let _turn = turn;
        let shelf = service.pages.shelves.get(kind as usize)?;
        let number = shelf.begin();
        Some(shelf.put(write(&service), number, now))
    });
    written.await.ok()?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::{HTTP_WATCH, PAGE_READ};
    use crate::{Drainer, HttpDoor, Listener};
    use std::thread;
    use std::time::Duration;
    use tidegate_core::FakeClock;
    use tidegate_engine::{Engine, Options};
    use tidegate_policy::{LoadOptions, load_text};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpSocket, TcpStream};

    fn service(rules: usize) -> Arc<Service> {
        let clock = FakeClock::new();
        let engine = Engine::new(Options { clock: clock.into(), keys: Some(1_000), ..Options::default() }).unwrap();
        let rules: String = (0..rules).map(|number| format!("{{name: rule-{number}, limit: 1/s}}, ")).collect();
        let loaded =
            load_text("test.yaml", &format!("domains: {{api: {{rules: [{rules}]}}}}"), &LoadOptions::default());
        engine.install(loaded.policy.unwrap()).unwrap();
        Arc::new(Service::new(engine))
    }

    #[tokio::test]
    async fn pages_are_not_written_where_requests_are_decided() {
        let (service, here) = (service(1), thread::current().id());
        let writer = Arc::new(Mutex::new(None));
        let told = Arc::clone(&writer);
        let write = move |_: &Service| {
            *told.lock().unwrap() = Some(thread::current().id());
            Vec::new()
        };
        assert!(find(&service, Kind::Metrics, write).await.is_some());
        assert!(writer.lock().unwrap().is_some_and(|writer| writer != here));
    }

    #[tokio::test]
    async fn a_page_that_cannot_be_written_is_the_only_one() {
        let service = service(1);
        assert!(find(&service, Kind::Rules, |_| panic!("on purpose")).await.is_none());
        assert!(find(&service, Kind::Rules, |_| Vec::new()).await.is_some());
    }

    #[tokio::test]
    async fn those_who_wait_share_the_next_page() {
        static WRITTEN: AtomicUsize = AtomicUsize::new(0);
        let service = service(1);
        let ask = || {
            find(&service, Kind::Rules, |_| {
                WRITTEN.fetch_add(1, Ordering::Relaxed);
                Vec::new()
            })
        };
        // As if a page were being written while they come: who comes after the next was begun would need one more.
        let writing = Arc::clone(&service.pages.turn).acquire_owned().await.unwrap();
        let (first, second, third, ()) = tokio::join!(ask(), ask(), ask(), async { drop(writing) });
        assert!(first.is_some() && second.is_some());
        assert_eq!(WRITTEN.load(Ordering::Relaxed), 1);
        drop((first, second));
        assert!(ask().await.is_some());
        assert_eq!(WRITTEN.load(Ordering::Relaxed), 2, "who comes later needs another");
        drop(third);
        let shelf = &service.pages.shelves[Kind::Rules as usize];
        assert_eq!(shelf.held.load(Ordering::Relaxed), 0, "nobody reads, so none is kept");
    }

    #[tokio::test]
    async fn who_asks_and_goes_does_not_have_many_written_at_a_time() {
        let service = service(1);
        let (go, wait) = std::sync::mpsc::channel();
        let (begin, mut has_begun) = tokio::sync::oneshot::channel();
        let mut asked = Box::pin(find(&service, Kind::Metrics, move |_| {
            begin.send(()).unwrap();
            wait.recv().unwrap();
            Vec::new()
        }));
        tokio::select! {
            _ = &mut asked => panic!("it waits"),
            begun = &mut has_begun => begun.unwrap(),
        }
        drop(asked);
        assert_eq!(service.pages.turn.available_permits(), 0, "it is still being written");
        go.send(()).unwrap();
        assert!(find(&service, Kind::Metrics, |_| Vec::new()).await.is_some());
    }

    #[test]
    fn pages_are_fresh_until_readers_pile_up() {
        let (shelf, start) = (Shelf::default(), Time::from_nanos(1_000_000_000_000));
        let shared = |after: Duration| shelf.share(9, start.plus(after)).map(|page| page.bytes.clone());
        assert_eq!(shared(Duration::ZERO), None, "there is none");
        let first = shelf.put(vec![1], 1, start);
        assert_eq!(shared(Duration::ZERO), None);
        let second = shelf.put(vec![2], 2, start);
        assert_eq!(shared(Duration::ZERO), Some(vec![2]));
        assert_eq!(shared(PAGE_SHARED), Some(vec![2]));
        assert_eq!(shared(PAGE_SHARED + Duration::from_nanos(1)), None);
        drop(first);
        assert_eq!(shared(Duration::ZERO), None, "only one is being read");
        drop(second);
        assert_eq!(shelf.held.load(Ordering::Relaxed), 0);
    }

    /// Readers that take as long as they may come without end.
    #[test]
    fn the_number_of_pages_is_bounded() {
        let (shelf, mut now) = (Shelf::default(), Time::from_nanos(1_000_000_000_000));
        let (step, mut readers) = (Duration::from_millis(100), Vec::new());
        let mut most = 0;
        for _ in 0..1_000 {
            now = now.plus(step);
            let page = shelf.share(shelf.begun(), now).unwrap_or_else(|| shelf.put(Vec::new(), shelf.begin(), now));
            readers.push((now.plus(PAGE_READ + 2 * HTTP_WATCH), page));
            readers.retain(|(end, _)| *end >= now);
            most = most.max(shelf.held.load(Ordering::Relaxed));
        }
        assert!((5..=10).contains(&most), "{most}");
    }

    /// A reader that asks, and takes little of what comes.
    async fn ask(address: std::net::SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(65_536).unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        stream
    }

    #[tokio::test]
    async fn readers_that_do_not_read_hold_few_pages() {
        // Each page is longer than what the system takes for a connection.
        let service = service(5_000);
        let listener = Listener::bind("http", "127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.address().unwrap();
        let door = Arc::new(HttpDoor::new(Arc::clone(&service)).listening_on(address));
        let (_drainer, drain) = Drainer::new();
        let accepting = tokio::spawn(async move { listener.accept(door, drain).await });
        let mut readers = Vec::new();
        for _ in 0..60 {
            readers.push(ask(address).await);
        }
        for reader in &mut readers {
            let mut status = [0; 12];
            reader.read_exact(&mut status).await.unwrap();
            assert_eq!(&status, b"HTTP/1.1 200");
        }
        let held = || service.pages.shelves[Kind::Metrics as usize].held.load(Ordering::Relaxed);
        assert!((1..=PAGES_FRESH).contains(&held()), "{}", held());
        // Who reads at last has the whole page.
        let mut reader = readers.swap_remove(0);
        let mut page = Vec::new();
        while !page.ends_with(b"ratelimit_service_config_load_error 0\n") {
            assert_ne!(reader.read_buf(&mut page).await.unwrap(), 0, "{} bytes", page.len());
        }
        drop((readers, reader));
        let all_gone = async {
            while held() > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), all_gone).await.expect("nobody reads, and pages are still held");
        accepting.abort();
    }
}

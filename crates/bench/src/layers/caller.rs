//! Requests that are called again and again, and the service that stands behind each layer.

use std::cell::RefCell;
use std::convert::Infallible;
use std::fmt::Debug;
use std::future::{self, Ready};
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::Body;
use axum::extract::ConnectInfo;
use http::header::{ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, COOKIE, HOST, REFERER, USER_AGENT};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use tokio::runtime::Runtime;
use tower::{Layer, Service, ServiceExt};

use crate::harness::median;

/// The header that tells a client apart.
pub(super) const CLIENT: HeaderName = HeaderName::from_static("x-client");

/// Requests that are timed together: enough that reading the clock hardly counts, and few enough that they stay in the
/// nearest caches, as one does that was just read from a connection.
const BATCH: usize = 32;
const BATCHES_A_ROUND: usize = 200;

/// Where requests come from, in the order in which they come.
pub(super) struct Clients(Vec<(SocketAddr, HeaderValue)>);

impl Clients {
    pub(super) fn new(count: u32) -> Rc<Clients> {
        let client = |number: u32| {
            let address = Ipv4Addr::from_bits(0x0a00_0000 + number);
            let name = HeaderValue::try_from(format!("client-{number:09}")).expect("it is ASCII");
            (SocketAddr::from((address, 40_000)), name)
        };
        let mut clients: Vec<_> = (0..count).map(client).collect();
        clients.shuffle(&mut SmallRng::seed_from_u64(7));
        Rc::new(Clients(clients))
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }
}

/// Is always ready and answers at once. It keeps the requests: making and freeing them would cost more than a layer.
#[derive(Clone)]
pub(super) struct Served(Rc<RefCell<Vec<Request<()>>>>);

impl Service<Request<()>> for Served {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        self.0.borrow_mut().push(request);
        future::ready(Ok(Response::new(Body::empty())))
    }
}

/// Calls a service, in rounds.
pub(super) trait Rounds {
    /// Nanoseconds a request: the median of many batches, since a mean would count what else the machine does.
    fn round(&mut self, runtime: &Runtime) -> f64;
}

struct Caller<S> {
    service: S,
    requests: Vec<Request<()>>,
    served: Served,
    clients: Rc<Clients>,
    position: usize,
}

/// Calls what a layer makes. It has seen each client before it is returned.
pub(super) fn calls<L, B>(runtime: &Runtime, clients: &Rc<Clients>, layer: L) -> Box<dyn Rounds>
where
    L: Layer<Served>,
    L::Service: Service<Request<()>, Response = Response<B>, Error: Debug> + 'static,
    B: 'static,
{
    let served = Served(Rc::new(RefCell::new((0..BATCH).map(|_| request()).collect())));
    let service = {
        // Some start a timer.
        let _inside = runtime.enter();
        layer.layer(served.clone())
    };
    let requests = Vec::with_capacity(BATCH);
    let mut caller = Caller { service, requests, served, clients: Rc::clone(clients), position: 0 };
    for _ in 0..clients.0.len().div_ceil(BATCH) {
        caller.batch(runtime);
    }
    Box::new(caller)
}

/// One as browsers send it.
fn request() -> Request<()> {
    let agent = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
    let request = Request::get("https://www.example.com/api/v1/orders/42")
        .header(HOST, "www.example.com")
        .header(USER_AGENT, agent)
        .header(ACCEPT, "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
        .header(ACCEPT_LANGUAGE, "en-US,en;q=0.5")
        .header(ACCEPT_ENCODING, "gzip, deflate, br")
        .header(REFERER, "https://www.example.com/")
        .header(COOKIE, "session=0123456789abcdef; theme=dark");
    request.body(()).expect("its parts are well formed")
}

impl<S, B> Caller<S>
where
    S: Service<Request<()>, Response = Response<B>, Error: Debug>,
{
    /// Nanoseconds a request.
    fn batch(&mut self, runtime: &Runtime) -> f64 {
        self.requests.append(&mut self.served.0.borrow_mut());
        for request in &mut self.requests {
            let (address, name) = &self.clients.0[self.position];
            self.position = (self.position + 1) % self.clients.0.len();
            request.extensions_mut().insert(ConnectInfo(*address));
            request.headers_mut().insert(CLIENT, name.clone());
        }
        let (service, requests) = (&mut self.service, &mut self.requests);
        let (nanos, passed) = runtime.block_on(async {
            let mut passed = 0;
            let start = Instant::now();
            for request in requests.drain(..) {
                let ready = service.ready().await.expect("it is ready");
                let response = ready.call(black_box(request)).await.expect("it answers");
                passed += usize::from(black_box(&response).status() == StatusCode::OK);
            }
            (start.elapsed().as_nanos() as f64, passed)
        });
        assert_eq!(passed, BATCH, "nothing is to be refused");
        nanos / BATCH as f64
    }
}

impl<S, B> Rounds for Caller<S>
where
    S: Service<Request<()>, Response = Response<B>, Error: Debug>,
{
    fn round(&mut self, runtime: &Runtime) -> f64 {
        let samples: Vec<f64> = (0..BATCHES_A_ROUND).map(|_| self.batch(runtime)).collect();
        median(&samples)
    }
}

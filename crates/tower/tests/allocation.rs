//! What passes under a limit allocates nothing, unless its response is to tell of the limit.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use http::{Request, Response};
use tidegate_tower::{ClientAddress, KeyBy, RateLimitLayer};
use tower::{Layer, Service};

/// The system's allocator, counting what this thread asks of it.
struct Counting;

thread_local!(static ASKED: Cell<u64> = const { Cell::new(0) });

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.with(|asked| asked.set(asked.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Clone)]
struct Hello;

impl Service<Request<()>> for Hello {
    type Response = Response<http_body_util::Empty<bytes::Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::default()))
    }
}

#[test]
fn what_passes_allocates_nothing() {
    let address = ClientAddress::new().trusted_hops(1);
    let keys = [KeyBy::header("x-user"), KeyBy::cookie("s"), KeyBy::api_key(), KeyBy::path()];
    for key in keys.into_iter().chain([KeyBy::client_address(address)]) {
        let shown = format!("{key:?}");
        let layer = RateLimitLayer::limit("100/minute".parse().unwrap(), key).headers_on_pass(false).build().unwrap();
        let mut service = layer.layer(Hello);
        let request = || {
            let request = Request::get("/a/b").header("x-user", "ann").header("cookie", "a=b; s=1");
            let request = request.header("x-api-key", "abc").header("x-forwarded-for", "1.1.1.1, 192.0.2.1");
            request.extension(SocketAddr::from(([10, 0, 0, 1], 1))).body(()).unwrap()
        };
        for _ in 0..3 {
            let request = request();
            let before = ASKED.get();
            let response = pin!(service.call(request)).poll(&mut Context::from_waker(Waker::noop()));
            let asked = ASKED.get() - before;
            let Poll::Ready(Ok(response)) = response else { unreachable!("it is ready") };
            assert_eq!((response.status().as_u16(), asked), (200, 0), "{shown}");
        }
    }
}

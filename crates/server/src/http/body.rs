//! Bodies: read within bounds of size and time. `policy/json.rs` takes them apart.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use bytes::Bytes;
use http::header::EXPECT;
use http::{HeaderMap, StatusCode};
use hyper::body::{Body, Incoming};
pub(super) use tidegate_policy::json::{Fields, list, text};

use super::answer::Failure;
use crate::body::{BodyError, collect};
use crate::bounds::{HTTP_BODY_BYTES_MAX, HTTP_SKIPPED_BYTES_MAX, STALL};
use crate::budget::Account;

/// Reads a body.
pub(super) async fn read(body: &mut Incoming, account: &Account) -> Result<Bytes, Failure> {
    if body.size_hint().lower() > HTTP_BODY_BYTES_MAX as u64 {
        return Err(too_large());
    }
    let mut collecting = pin!(collect(body, HTTP_BODY_BYTES_MAX, account, || 0));
    let collected = match soon(collecting.as_mut()).await {
        Some(collected) => collected,
        None => tokio::time::timeout(STALL, collecting).await.map_err(|_| too_slow())?,
    };
    collected.map_err(|error| match error {
        BodyError::CutOff => Failure::bad("body", "incomplete", "send the whole body").closing(),
        BodyError::TooLong { .. } => too_large(),
        BodyError::GivenUp => given_up(),
    })
}

/// Reads and drops the rest of a body that no call needs, if it has arrived and is short: then the connection can go on with the
/// next request. Returns whether the body has ended.
pub(super) async fn skip(body: &mut Incoming, headers: &HeaderMap) -> bool {
    // A client that asks before it sends a body is not told to send it.
    if headers.contains_key(EXPECT) {
        return false;
    }
    let mut skipped = 0;
    while body.size_hint().lower() + skipped <= HTTP_SKIPPED_BYTES_MAX {
        let next = pin!(poll_fn(|context| Pin::new(&mut *body).poll_frame(context)));
        match soon(next).await {
            Some(None) => return true,
            Some(Some(Ok(frame))) => skipped += frame.data_ref().map_or(0, |data| data.len() as u64),
            Some(Some(Err(_))) | None => return false,
        }
    }
    false
}

/// What comes within a few polls. Mostly the body came with the head, and hyper hands it over as soon as it is asked
/// again: a timer for each request would cost more than reading it.
async fn soon<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    let mut polls = 0;
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if polls == 2 => Poll::Ready(None),
        Poll::Pending => {
            polls += 1;
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}

fn too_slow() -> Failure {
    let detail = format!("body: not received within {} s; send it without pauses", STALL.as_secs());
    Failure::new(StatusCode::REQUEST_TIMEOUT, detail).closing()
}

fn too_large() -> Failure {
    let detail = format!("body: too large; send at most {HTTP_BODY_BYTES_MAX} bytes");
    Failure::new(StatusCode::PAYLOAD_TOO_LARGE, detail).closing()
}

fn given_up() -> Failure {
    let detail = "body: dropped, since unfinished requests take too much memory; send it without pauses";
    Failure::new(StatusCode::SERVICE_UNAVAILABLE, detail).closing()
}

/// The text of a body.
pub(super) fn utf8(body: &[u8]) -> Result<&str, Failure> {
    str::from_utf8(body).map_err(|error| {
        Failure::bad("body", format_args!("not UTF-8 after byte {}", error.valid_up_to()), "write JSON in UTF-8")
    })
}

//! One message in, one message out: the way of nearly all calls.
//!
//! tonic's own way serves streams too, and boxes, queues and polls what a single message does not need: that was a sixth
//! of the cost of a call. Health and reflection, which are rare, go tonic's way.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use prost::Message;
use tonic::Status;

use crate::body::{BodyError, collect};
use crate::bounds::GRPC_MESSAGE_BYTES_MAX;
use crate::budget::Account;

/// Before each message: whether it is compressed, and its length in four bytes.
const PREFIX: usize = 5;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// The body of an answer.
#[derive(Debug)]
pub(super) enum Answer {
    /// A message and the status after it; neither where the status is in the head.
    Message { message: Option<Bytes>, trailers: Option<HeaderMap> },
    /// What tonic made.
    Tonic(tonic::body::Body),
}

impl Default for Answer {
    fn default() -> Answer {
        Answer::Message { message: None, trailers: None }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.get_mut() {
            Answer::Message { message, trailers } => {
                let message = message.take().map(Frame::data);
                Poll::Ready(message.or_else(|| trailers.take().map(Frame::trailers)).map(Ok))
            }
            Answer::Tonic(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Answer::Message { message, trailers } => message.is_none() && trailers.is_none(),
            Answer::Tonic(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Answer::Message { message, .. } => SizeHint::with_exact(message.as_ref().map_or(0, |one| one.len() as u64)),
            Answer::Tonic(body) => body.size_hint(),
        }
    }
}

/// Reads the one message of a request.
pub(super) async fn read<M: Message + Default>(
    headers: &HeaderMap,
    body: Incoming,
    account: &Account,
) -> Result<M, Status> {
    let names_encoding = headers.contains_key("grpc-encoding");
    let collected = collect(body, GRPC_MESSAGE_BYTES_MAX + PREFIX, account, || bytes_of(headers)).await;
    decode(&collected.map_err(|error| refusal(&error, GRPC_MESSAGE_BYTES_MAX))?, names_encoding)
}

/// Reads the one message of a request to tonic, which would keep what there is of it without a bound over all requests.
pub(super) async fn whole(
    request: http::Request<Incoming>,
    bytes_max: usize,
    account: &Account,
) -> Result<http::Request<Full<Bytes>>, Status> {
    let (parts, body) = request.into_parts();
    let collected = collect(body, bytes_max + PREFIX, account, || bytes_of(&parts.headers)).await;
    let bytes = collected.map_err(|error| refusal(&error, bytes_max))?;
    Ok(http::Request::from_parts(parts, Full::new(bytes)))
}

/// Bytes of headers, as HTTP/2 counts them.
fn bytes_of(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum()
}

fn refusal(error: &BodyError, bytes_max: usize) -> Status {
    match error {
        BodyError::CutOff => Status::cancelled("the request is incomplete"),
        BodyError::TooLong { bytes } => too_long(*bytes, bytes_max),
        BodyError::GivenUp => {
            Status::resource_exhausted("unfinished requests take too much memory; send each message without pauses")
        }
    }
}

fn decode<M: Message + Default>(bytes: &[u8], names_encoding: bool) -> Result<M, Status> {
    let Some((&[compressed, ref length @ ..], message)) = bytes.split_first_chunk::<PREFIX>() else {
        return Err(Status::internal("the request has no message"));
    };
    match (compressed, names_encoding) {
        (0, _) => {}
        (1, true) => {
            return Err(Status::unimplemented("compressed messages are not supported; send them uncompressed"));
        }
        _ => return Err(Status::internal("the message is marked as compressed, but there is no grpc-encoding header")),
    }
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if length > GRPC_MESSAGE_BYTES_MAX {
        return Err(too_long(length, GRPC_MESSAGE_BYTES_MAX));
    }
    if length != message.len() {
        let told = format!("the message has {} bytes, but its prefix says {length}", message.len());
        return Err(Status::internal(told));
    }
    M::decode(message).map_err(|error| Status::internal(format!("the message cannot be decoded: {error}")))
}

fn too_long(length: usize, bytes_max: usize) -> Status {
    Status::out_of_range(format!("the message has {length} bytes; send at most {bytes_max}"))
}

/// An answer with a message.
pub(super) fn ok(message: &impl Message) -> http::Response<Answer> {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // The room was made for it.
    let _ = message.encode(&mut bytes);
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
    respond(Answer::Message { message: Some(bytes.freeze()), trailers: Some(trailers) })
}

/// An answer without one: the status stands in its head.
pub(super) fn refused(status: &Status) -> http::Response<Answer> {
    let mut response = respond(Answer::default());
    // Fails only for text that cannot stand in a header, and then the number is enough.
    let _ = status.add_header(response.headers_mut());
    response
}

fn respond(body: Answer) -> http::Response<Answer> {
    let mut response = http::Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

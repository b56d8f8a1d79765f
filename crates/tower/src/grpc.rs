//! Denials as gRPC statuses: a status without a message before it ("trailers only"), with the time to wait in its
//! details.
//!
//! The few messages that are needed are encoded here by hand, so that users of the layers need no protobuf compiler.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap};
use http::{HeaderName, HeaderValue, Response};
use tidegate_engine::Denial;
use tidegate_engine::http_headers::{COST_FAILED, NEVER_FITS};

use crate::answer::Why;

pub(crate) const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
pub(crate) const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
/// The header that gRPC clients read before they retry by themselves.
pub(crate) const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
pub(crate) const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// Codes of gRPC statuses.
pub(crate) mod code {
    pub(crate) const OK: u32 = 0;
    pub(crate) const CANCELLED: u32 = 1;
    pub(crate) const INVALID_ARGUMENT: u32 = 3;
    pub(crate) const DEADLINE_EXCEEDED: u32 = 4;
    pub(crate) const PERMISSION_DENIED: u32 = 7;
    pub(crate) const RESOURCE_EXHAUSTED: u32 = 8;
    pub(crate) const UNAVAILABLE: u32 = 14;
}

/// Returns whether a request is a gRPC call. Calls of gRPC-Web are not: their responses have another form.
pub(crate) fn is_call(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.as_bytes().strip_prefix(b"application/grpc"));
    matches!(kind, Some([] | [b'+' | b';', ..]))
}

/// Builds the response to a denied call, with the time to wait if waiting helps, or with a request not to retry if the
/// cost is above a whole limit. A hidden denial shows the status code alone.
pub(crate) fn denied(why: Why, is_hidden: bool, wait: Option<Duration>) -> Response<Bytes> {
    let never_fits = why == Why::Denial(Denial::OverLimit) && wait.is_none() && !is_hidden;
    let (code, message): (u32, Cow<'static, str>) = match why {
        Why::Refused(refusal) => (refusal.grpc_code(), refusal.to_string().into()),
        Why::Denial(Denial::OverLimit) if never_fits => (code::RESOURCE_EXHAUSTED, NEVER_FITS.into()),
        Why::Denial(Denial::OverLimit) => (code::RESOURCE_EXHAUSTED, "the quota is used up".into()),
        Why::Denial(Denial::Penalty) => (code::RESOURCE_EXHAUSTED, "denied for a time after too many requests".into()),
        Why::Denial(Denial::StoreFailure) => (code::UNAVAILABLE, "capacity is temporarily reduced".into()),
        Why::Denial(Denial::CostFailed) => (code::UNAVAILABLE, COST_FAILED.into()),
        Why::Denial(Denial::Overloaded) => (code::UNAVAILABLE, "the rate limiter is overloaded".into()),
        Why::Denial(Denial::Blocked) => (code::PERMISSION_DENIED, "forbidden".into()),
    };
    let message = if is_hidden { Cow::Borrowed("denied") } else { message };
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(STATUS, HeaderValue::from(code));
    // All are printable ASCII without a percent sign, with which gRPC begins an escape.
    if let Ok(message) = HeaderValue::from_str(&message) {
        headers.insert(MESSAGE, message);
    }
    if never_fits {
        // Clients that retry by themselves do not retry after a negative value.
        headers.insert(PUSHBACK, HeaderValue::from_static("-1"));
    }
    if let Some(wait) = wait {
        // Rounded up: a retry a millisecond early would be refused again.
        let millis = u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        headers.insert(PUSHBACK, HeaderValue::from(millis));
        if let Ok(details) = HeaderValue::try_from(base64(&status(code.into(), &message, wait))) {
            headers.insert(DETAILS, details);
        }
    }
    response
}

/// Encodes a `google.rpc.Status` with a `google.rpc.RetryInfo` in its details.
fn status(code: u64, message: &str, wait: Duration) -> Vec<u8> {
    let mut delay = Vec::new();
    number(&mut delay, 1, wait.as_secs());
    number(&mut delay, 2, wait.subsec_nanos().into());
    let mut retry_info = Vec::new();
    bytes(&mut retry_info, 1, &delay);
    let mut any = Vec::new();
    bytes(&mut any, 1, RETRY_INFO.as_bytes());
    bytes(&mut any, 2, &retry_info);
    let mut status = Vec::new();
    number(&mut status, 1, code);
    bytes(&mut status, 2, message.as_bytes());
    bytes(&mut status, 3, &any);
    status
}

/// Appends a field with a number; zero is left out.
fn number(message: &mut Vec<u8>, field: u8, value: u64) {
    if value > 0 {
        message.push(field << 3);
        varint(message, value);
    }
}

/// Appends a field with text or a nested message.
fn bytes(message: &mut Vec<u8>, field: u8, value: &[u8]) {
    message.push(field << 3 | 2);
    varint(message, value.len() as u64);
    message.extend_from_slice(value);
}

fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        message.push(low_bits(value) | 0x80);
        value >>= 7;
    }
    message.push(low_bits(value));
}

fn low_bits(value: u64) -> u8 {
    u8::try_from(value & 0x7f).unwrap_or_default()
}

/// Encodes bytes for a header: without padding, as gRPC asks.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().chain([&0; 2]).take(3).fold(0_u32, |group, byte| group << 8 | u32::from(*byte));
        for place in 0..=chunk.len() {
            let digit = (group >> (18 - 6 * place)) & 0x3f;
            text.extend(ALPHABET.get(digit as usize).map(|digit| char::from(*digit)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use tonic_types::StatusExt;

    use super::*;
    use crate::Refusal;

    #[test]
    fn bytes_as_text() {
        for (bytes, text) in
            [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg"), ("fooba", "Zm9vYmE")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xfb, 0xff, 0xbf]), "+/+/");
    }

    #[test]
    fn others_read_what_is_written_by_hand() {
        let waits = [0, 1, 999_999_999, 1_000_000_000, 127_000_000_001, 16_384_000_000_000, u64::MAX];
        for wait in waits.map(Duration::from_nanos) {
            let response = denied(Why::Denial(Denial::OverLimit), false, Some(wait));
            let read = tonic::Status::from_header_map(response.headers()).unwrap();
            assert_eq!((read.code(), read.message()), (tonic::Code::ResourceExhausted, "the quota is used up"));
            assert_eq!(read.get_details_retry_info().unwrap().retry_delay, Some(wait), "{wait:?}");
            let pushback: u128 = response.headers()["grpc-retry-pushback-ms"].to_str().unwrap().parse().unwrap();
            assert!(pushback * 1_000_000 >= wait.as_nanos(), "{wait:?}");
        }
    }

    #[test]
    fn the_codes_of_denials() {
        let cases = [
            (Why::Refused(Refusal::without_key(crate::Reason::NoKey)), tonic::Code::InvalidArgument),
            (Why::Denial(Denial::OverLimit), tonic::Code::ResourceExhausted),
            (Why::Denial(Denial::Penalty), tonic::Code::ResourceExhausted),
            (Why::Denial(Denial::StoreFailure), tonic::Code::Unavailable),
            (Why::Denial(Denial::CostFailed), tonic::Code::Unavailable),
            (Why::Denial(Denial::Blocked), tonic::Code::PermissionDenied),
        ];
        for (why, code) in cases {
            for is_hidden in [false, true] {
                let status = tonic::Status::from_header_map(denied(why, is_hidden, None).headers()).unwrap();
                assert_eq!(status.code(), code);
                assert_eq!(status.message() == "denied", is_hidden, "{why:?}");
                assert!(status.details().is_empty());
            }
        }
    }

    #[test]
    fn what_is_a_call() {
        let cases = [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;charset=utf-8", true),
            ("application/grpc-web", false),
            ("application/grpc-web+proto", false),
            ("application/json", false),
        ];
        for (kind, expected) in cases {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
            assert_eq!(is_call(&headers), expected, "{kind}");
        }
        assert!(!is_call(&HeaderMap::new()));
    }
}

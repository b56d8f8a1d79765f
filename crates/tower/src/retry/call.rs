//! Refused gRPC calls: a status without a message before it ("trailers only"), and when to retry.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use tidegate_core::Time;

use super::retry_after;
use crate::bounds::GRPC_DETAILS_BYTES_MAX;
use crate::grpc::{DETAILS, PUSHBACK, RETRY_INFO, STATUS, code};

/// The time to wait before a call is retried. `None` if it was not refused, or if the server states no time: then
/// waiting may not help, as with a message that is too large.
pub(super) fn wait(headers: &HeaderMap, now: impl FnOnce() -> Time) -> Option<Duration> {
    let code: u32 = headers.get(STATUS)?.to_str().ok()?.parse().ok()?;
    if ![code::RESOURCE_EXHAUSTED, code::UNAVAILABLE].contains(&code) {
        return None;
    }
    match headers.get(PUSHBACK) {
        // A number below zero, or what cannot be read, asks not to come back.
        Some(millis) => Some(Duration::from_millis(millis.to_str().ok()?.parse().ok()?)),
        None => headers.get(DETAILS).and_then(retry_delay).or_else(|| retry_after(headers, now())),
    }
}

/// The delay of the `google.rpc.RetryInfo` in the details of a `google.rpc.Status`, if there is one.
fn retry_delay(details: &HeaderValue) -> Option<Duration> {
    let details = Some(details.as_bytes()).filter(|details| details.len() <= GRPC_DETAILS_BYTES_MAX)?;
    let status = from_base64(details)?;
    let mut any = Fields(&status).filter(|(number, _)| *number == 3).filter_map(|(_, value)| value.bytes());
    let info = any.find(|any| Fields(any).bytes(1) == Some(RETRY_INFO.as_bytes()))?;
    let delay = Fields(Fields(info).bytes(2)?).bytes(1)?;
    // Both are signed, and what is below zero has the highest bit: nobody waits for that long.
    let seconds = Fields(delay).number(1).filter(|seconds| i64::try_from(*seconds).is_ok())?;
    let nanos = Fields(delay).number(2).and_then(|nanos| u32::try_from(nanos).ok())?;
    (nanos < 1_000_000_000).then(|| Duration::new(seconds, nanos))
}

/// The fields of a message with their numbers, as far as they can be parsed.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8]);

#[derive(Clone, Copy)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// A field of a type that is not needed.
    Other,
}

impl<'a> Value<'a> {
    fn bytes(self) -> Option<&'a [u8]> {
        if let Value::Bytes(bytes) = self { Some(bytes) } else { None }
    }
}

impl<'a> Fields<'a> {
    /// The first field with this number that holds text or a nested message.
    fn bytes(mut self, number: u64) -> Option<&'a [u8]> {
        self.find_map(|(one, value)| value.bytes().filter(|_| one == number))
    }

    /// The number in a field: zero if it is missing, since zero is not written. `None` if the field holds something
    /// else.
    fn number(mut self, number: u64) -> Option<u64> {
        match self.find(|(one, _)| *one == number) {
            None => Some(0),
            Some((_, Value::Number(value))) => Some(value),
            Some(_) => None,
        }
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Value<'a>);

    fn next(&mut self) -> Option<(u64, Value<'a>)> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.take(8).map(|_| Value::Other)?,
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Value::Other)?,
            _ => return None,
        };
        Some((tag >> 3, value))
    }
}

/// Decodes the bytes of a header, with or without padding.
fn from_base64(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    let (mut bytes, mut group, mut bits) = (Vec::with_capacity(text.len() * 3 / 4), 0_u32, 0);
    for digit in text {
        let digit = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        group = group << 6 | u32::from(digit);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(group >> bits & 0xff).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use tonic::{Code, Status};
    use tonic_types::{ErrorDetails, StatusExt};

    use super::*;

    fn now() -> Time {
        Time::from_nanos(0)
    }

    fn headers(status: Status) -> HeaderMap {
        status.into_http::<()>().headers().clone()
    }

    fn told(status: Status) -> Option<Duration> {
        wait(&headers(status), now)
    }

    fn exhausted(details: ErrorDetails) -> Status {
        Status::with_error_details(Code::ResourceExhausted, "no more", details)
    }

    #[test]
    fn retry_info_is_read_as_others_write_it() {
        for nanos in [0, 1, 999_999_999, 1_000_000_000, 90_061_000_000_007] {
            let delay = Duration::from_nanos(nanos);
            assert_eq!(told(exhausted(ErrorDetails::with_retry_info(Some(delay)))), Some(delay));
            let mut many = ErrorDetails::with_debug_info(vec!["here".to_owned()], "slow");
            many.set_retry_info(Some(delay)).set_request_info("7", "");
            assert_eq!(told(exhausted(many)), Some(delay), "among others");
        }
        assert_eq!(told(exhausted(ErrorDetails::with_debug_info(Vec::new(), "slow"))), None);
        assert_eq!(told(exhausted(ErrorDetails::with_retry_info(None))), None);
        assert_eq!(told(Status::resource_exhausted("the message is too large")), None, "no waiting helps");
    }

    #[test]
    fn only_refusals_are_sent_again() {
        for code in (0..17).map(Code::from_i32) {
            let details = ErrorDetails::with_retry_info(Some(Duration::from_secs(1)));
            let is_refused = matches!(code, Code::ResourceExhausted | Code::Unavailable);
            assert_eq!(told(Status::with_error_details(code, "", details)).is_some(), is_refused, "{code:?}");
        }
        assert_eq!(wait(&HeaderMap::new(), now), None);
    }

    #[test]
    fn who_is_asked_not_to_come_back_does_not() {
        let details = ErrorDetails::with_retry_info(Some(Duration::from_secs(1)));
        let mut headers = headers(exhausted(details));
        for (pushback, expected) in [("250", Some(250)), ("0", Some(0)), ("-1", None), ("soon", None), ("", None)] {
            headers.insert(PUSHBACK, pushback.parse().unwrap());
            assert_eq!(wait(&headers, now), expected.map(Duration::from_millis), "{pushback}");
        }
        headers.remove(PUSHBACK);
        headers.remove(DETAILS);
        headers.insert("retry-after", HeaderValue::from_static("3"));
        assert_eq!(wait(&headers, now), Some(Duration::from_secs(3)));
    }

    #[test]
    fn what_cannot_be_read_is_not_believed() {
        let mut many = ErrorDetails::with_retry_info(Some(Duration::from_secs(9)));
        many.set_debug_info(vec!["here".to_owned()], "slow");
        let whole = headers(exhausted(many))[DETAILS].clone();
        let seen = |details: &[u8]| retry_delay(&HeaderValue::from_bytes(details).unwrap());
        for end in 0..whole.len() {
            let told = seen(&whole.as_bytes()[..end]);
            assert!(told.is_none_or(|told| told == Duration::from_secs(9)), "{end}: {told:?}");
        }
        for place in 0..whole.len() {
            for digit in *b"AZaz09+/=-" {
                let mut changed = whole.as_bytes().to_vec();
                changed[place] = digit;
                let _ = seen(&changed);
            }
        }
        assert_eq!(seen(&vec![b'A'; GRPC_DETAILS_BYTES_MAX + 1]), None);
        // A delay below zero, and nanoseconds that are none.
        for delay in
            [&[8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1][..], &[16, 0x80, 0x94, 0xeb, 0xdc, 3]]
        {
            let mut any = vec![10, u8::try_from(RETRY_INFO.len()).unwrap()];
            any.extend_from_slice(RETRY_INFO.as_bytes());
            let length = u8::try_from(delay.len()).unwrap();
            any.extend_from_slice(&[18, length + 2, 10, length]);
            any.extend_from_slice(delay);
            let mut status = vec![26, u8::try_from(any.len()).unwrap()];
            status.extend_from_slice(&any);
            assert_eq!(seen(crate::grpc::base64(&status).as_bytes()), None);
        }
    }
}

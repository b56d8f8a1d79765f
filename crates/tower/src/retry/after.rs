//! Parsing of `Retry-After`.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::{DATE, HeaderName, RETRY_AFTER};
use tidegate_core::Time;

use crate::bounds::RETRY_AFTER_BYTES_MAX;

/// Returns the time to wait that `Retry-After` states, in seconds or as a date, or `None` if it is missing or invalid.
/// A date counts from the response's own `Date`, so that clocks that differ do no harm; from `now` if that is missing.
///
/// ```
/// use std::time::Duration;
/// use tidegate_core::Time;
/// use tidegate_tower::retry_after;
///
/// let mut headers = http::HeaderMap::new();
/// headers.insert("date", "Sun, 06 Nov 1994 08:49:37 GMT".parse()?);
/// headers.insert("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT".parse()?);
/// assert_eq!(retry_after(&headers, Time::from_nanos(0)), Some(Duration::from_secs(30)));
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
#[must_use]
pub fn retry_after(headers: &HeaderMap, now: Time) -> Option<Duration> {
    let text = text(headers, RETRY_AFTER)?;
    if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        // What is beyond all numbers is longer than anybody waits.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let until = httpdate::parse_http_date(text).ok()?;
    let told = self::text(headers, DATE).and_then(|date| httpdate::parse_http_date(date).ok());
    let start = told.or_else(|| SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(now.as_nanos())))?;
    Some(until.duration_since(start).unwrap_or_default())
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let text = headers.get(name)?.to_str().ok()?.trim();
    (text.len() <= RETRY_AFTER_BYTES_MAX).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1994-11-06 08:49:37 UTC.
    const NOW: Time = Time::from_nanos(784_111_777_000_000_000);

    #[test]
    fn what_servers_write() {
        let long = "9".repeat(RETRY_AFTER_BYTES_MAX + 1);
        let cases: [(&str, Option<&str>, Option<u64>); 14] = [
            ("120", None, Some(120)),
            (" 0 ", None, Some(0)),
            ("99999999999999999999999", None, Some(u64::MAX)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", None, Some(10)),
            ("Sunday, 06-Nov-94 08:49:47 GMT", None, Some(10)),
            ("Sun Nov  6 08:49:47 1994", None, Some(10)),
            // It is over already.
            ("Sun, 06 Nov 1994 08:49:27 GMT", None, Some(0)),
            // The server's clock is an hour ahead.
            ("Sun, 06 Nov 1994 09:49:47 GMT", Some("Sun, 06 Nov 1994 09:49:37 GMT"), Some(10)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", Some("yesterday"), Some(10)),
            ("", None, None),
            ("-1", None, None),
            ("1.5", None, None),
            ("soon", None, None),
            (&long, None, None),
        ];
        for (value, date, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, value.parse().unwrap());
            if let Some(date) = date {
                headers.insert(DATE, date.parse().unwrap());
            }
            assert_eq!(retry_after(&headers, NOW), expected.map(Duration::from_secs), "{value}, {date:?}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), NOW), None);
    }
}

//! Until when a certificate is valid.

use std::fmt;

use tidegate_core::Time;
use x509_cert::Certificate;
use x509_cert::der::{DateTime, Decode};

/// The last second that a certificate is valid, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct End(DateTime);

impl End {
    /// Reads that of a certificate in DER. Returns `None` if it cannot be read.
    pub(crate) fn of_certificate(der: &[u8]) -> Option<End> {
        let certificate = Certificate::from_der(der).ok()?;
        Some(End(certificate.tbs_certificate().validity().not_after.to_date_time()))
    }

    /// Whole seconds since the epoch. A certificate that ended before it cannot be read.
    pub(crate) fn seconds(self) -> u64 {
        self.0.unix_duration().as_secs()
    }

    /// How many seconds are left; none if it has ended.
    pub(crate) fn seconds_left(self, now: Time) -> Option<u64> {
        self.seconds().checked_sub(now.as_nanos() / 1_000_000_000)
    }
}

impl fmt::Display for End {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    const UTC_TIME: u8 = 0x17;
    const GENERALIZED_TIME: u8 = 0x18;

    fn certificate(year: i32, month: u8, day: u8) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = date_time_ymd(1999, 1, 1);
        params.not_after = date_time_ymd(year, month, day);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    /// A certificate whose end is this text.
    fn certificate_until(tag: u8, text: &str) -> Vec<u8> {
        let (mut der, until) = (certificate(2025, 1, 1), [&[UTC_TIME, 13][..], b"250101000000Z"].concat());
        let start = der.windows(until.len()).position(|part| part == until).unwrap();
        let element = [&[tag, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        der.splice(start..start + until.len(), element);
        // Three sequences have it within them: the whole, what is signed of it, and the two times of 15 bytes.
        der[start - 16] = u8::try_from(17 + text.len()).unwrap();
        for place in [2, 6] {
            let length = u16::from_be_bytes([der[place], der[place + 1]]) + u16::try_from(text.len()).unwrap() - 13;
            der[place..place + 2].copy_from_slice(&length.to_be_bytes());
        }
        der
    }

    #[test]
    fn the_end_of_certificates() {
        for (year, month, day, seconds) in [
            (2000, 2, 29, 951_782_400),
            (2025, 1, 1, 1_735_689_600),
            (2049, 12, 31, 2_524_521_600),
            // From here on years have four digits.
            (2050, 1, 1, 2_524_608_000),
            (2100, 3, 1, 4_107_542_400),
            (4000, 1, 1, 64_060_588_800),
        ] {
            let end = End::of_certificate(&certificate(year, month, day)).unwrap();
            assert_eq!(end.to_string(), format!("{year}-{month:02}-{day:02}T00:00:00Z"));
            assert_eq!(end.seconds(), seconds, "{end}");
        }
    }

    #[test]
    fn only_dates_that_exist_are_read() {
        let read = |tag: u8, text: &str| End::of_certificate(&certificate_until(tag, text)).map(|end| end.to_string());
        for (tag, text, expected) in [
            (UTC_TIME, "250228235959Z", Some("2025-02-28T23:59:59Z")),
            (UTC_TIME, "240229000000Z", Some("2024-02-29T00:00:00Z")),
            (GENERALIZED_TIME, "20000229000000Z", Some("2000-02-29T00:00:00Z")),
            (GENERALIZED_TIME, "99991231235959Z", Some("9999-12-31T23:59:59Z")),
            (UTC_TIME, "250229000000Z", None),
            (UTC_TIME, "250231000000Z", None),
            (UTC_TIME, "250431000000Z", None),
            (GENERALIZED_TIME, "21000229000000Z", None),
            (UTC_TIME, "250001000000Z", None),
            (UTC_TIME, "251301000000Z", None),
            (UTC_TIME, "250100000000Z", None),
            (UTC_TIME, "250101240000Z", None),
            (UTC_TIME, "250101006000Z", None),
            (UTC_TIME, "250101000060Z", None),
            (UTC_TIME, "2501010000000Z", None),
            (UTC_TIME, "2501010000Z", None),
            (UTC_TIME, "250101000000", None),
            (UTC_TIME, "250101000000+0100", None),
            (GENERALIZED_TIME, "20250101000000.5Z", None),
            (GENERALIZED_TIME, "+2250101000000Z", None),
        ] {
            assert_eq!(read(tag, text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_left() {
        let end = End::of_certificate(&certificate(2025, 1, 1)).unwrap();
        let at = |seconds: u64| end.seconds_left(Time::from_nanos(seconds * 1_000_000_000));
        assert_eq!(at(1_735_689_500), Some(100));
        assert_eq!(at(1_735_689_600), Some(0));
        assert_eq!(at(1_735_689_601), None);
    }

    #[test]
    fn pieces_of_certificates_have_none() {
        let whole = certificate(2025, 1, 1);
        for length in 0..whole.len() {
            assert_eq!(End::of_certificate(&whole[..length]), None, "{length}");
        }
    }

    proptest! {
        #[test]
        fn anything_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..100), place in 0_usize..200, byte: u8) {
            let _ = End::of_certificate(&bytes);
            let mut changed = certificate(2025, 1, 1);
            if let Some(old) = changed.get_mut(place) {
                *old = byte;
            }
            if let Some(end) = End::of_certificate(&changed) {
                let _ = (end.seconds(), end.to_string());
            }
        }
    }
}

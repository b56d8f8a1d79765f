//! Until when a certificate is valid.
//!
//! Of X.509 only the way to that date is read, a few fields from the start: who trusts the certificate reads the rest.

use std::fmt;

use tidegate_core::Time;

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
/// The version, which old certificates do not have.
const VERSION: u8 = 0xa0;

/// The last second that a certificate is valid, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct End {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
}

impl End {
    /// That of a certificate in DER, if it can be read.
    pub(crate) fn of_certificate(der: &[u8]) -> Option<End> {
        let (certificate, _) = element(der, SEQUENCE)?;
        let (mut fields, _) = element(certificate, SEQUENCE)?;
        if fields.first() == Some(&VERSION) {
            fields = element(fields, VERSION)?.1;
        }
        // The serial number, the algorithm of the signature and the issuer come before.
        for tag in [INTEGER, SEQUENCE, SEQUENCE] {
            fields = element(fields, tag)?.1;
        }
        let (validity, _) = element(fields, SEQUENCE)?;
        let (_, after) = time(validity)?;
        Some(time(after)?.0)
    }

    /// Whole seconds since the epoch; 0 for what ended before it.
    pub(crate) fn seconds(self) -> u64 {
        // Years begin in March here, so that the day that not all have is the last one.
        let year = if self.month > 2 { self.year } else { self.year - 1 };
        let month = (self.month + 9) % 12;
        let day_of_year = (153 * month + 2) / 5 + self.day - 1;
        let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
        let days = year * 365 + leap_days + day_of_year - 719_468;
        let seconds = days * 86_400 + self.hour * 3_600 + self.minute * 60 + self.second;
        u64::try_from(seconds).unwrap_or(0)
    }

    /// How many seconds are left; none if it has ended.
    pub(crate) fn seconds_left(self, now: Time) -> Option<u64> {
        self.seconds().checked_sub(now.as_nanos() / 1_000_000_000)
    }
}

impl fmt::Display for End {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let End { year, month, day, hour, minute, second } = self;
        write!(formatter, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

/// The content of the first element, which has this tag, and what follows it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, rest) = bytes.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(*length), rest),
        // So many bytes tell the length: more than four would be more than any file.
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            (digits.iter().try_fold(0_usize, |all, digit| all.checked_mul(256)?.checked_add((*digit).into()))?, rest)
        }
        _ => return None,
    };
    if *found == tag { rest.split_at_checked(length) } else { None }
}

/// The time that stands first, and what follows it.
fn time(bytes: &[u8]) -> Option<(End, &[u8])> {
    let tag = *bytes.first()?;
    let (text, rest) = element(bytes, tag)?;
    let (year, text) = match tag {
        // Two digits of a year from 1950 on.
        UTC_TIME => text.split_at_checked(2).and_then(|(year, text)| {
            let year = number(year)?;
            Some((if year < 50 { 2000 + year } else { 1900 + year }, text))
        })?,
        GENERALIZED_TIME => text.split_at_checked(4).and_then(|(year, text)| Some((number(year)?, text)))?,
        _ => return None,
    };
    // A digit too many is no date either.
    let (fields, []) = text.strip_suffix(b"Z")?.as_chunks::<2>() else { return None };
    let [month, day, hour, minute, second] = fields else { return None };
    let field = |digits: &[u8; 2], least, most| number(digits).filter(|number| (least..=most).contains(number));
    let month = field(month, 1, 12)?;
    let end = End {
        year,
        month,
        day: field(day, 1, days_of_month(year, month))?,
        hour: field(hour, 0, 23)?,
        minute: field(minute, 0, 59)?,
        second: field(second, 0, 59)?,
    };
    Some((end, rest))
}

fn days_of_month(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn number(digits: &[u8]) -> Option<i64> {
    let is_number = digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| digits.iter().fold(0, |all, digit| all * 10 + i64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn certificate(year: i32, month: u8, day: u8) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = date_time_ymd(1999, 1, 1);
        params.not_after = date_time_ymd(year, month, day);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
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
        let read = |tag: u8, text: &str| {
            let element = [&[tag, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
            time(&element).map(|(end, _)| end.to_string())
        };
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

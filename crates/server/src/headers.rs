//! What answers tell of limits: made where every front end finds it, and held to its form here.

pub(crate) use tidegate_engine::http_headers::*;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use tidegate_core::{Retry, Strictness, Time};
    use tidegate_engine::bounds::POLICIES_TOLD_MAX;
    use tidegate_engine::{Binding, Denial};
    use tidegate_policy::{Headers, Shown};

    use super::*;

    const NANOS_PER_SECOND: u64 = 1_000_000_000;

    const NOW: Time = Time::from_nanos(1_700_000_000_500_000_000);

    fn one(name: &str, family: Headers) -> LimitNumbers<'_> {
        let shown = Shown { units: 100, period_ns: 60 * NANOS_PER_SECOND };
        let wait = Duration::from_millis(29_001);
        let binding = Binding::new(true, Strictness::new(true, 50, wait));
        LimitNumbers { name, shown, texts: None, remaining: 50, wait, denies: false, never: false, binding, family }
    }

    /// The same, as it binds with its numbers.
    fn bound(one: LimitNumbers<'_>) -> LimitNumbers<'_> {
        LimitNumbers { binding: Binding::new(true, Strictness::new(!one.denies, one.remaining, one.wait)), ..one }
    }

    fn denying(name: &str, family: Headers) -> LimitNumbers<'_> {
        LimitNumbers { remaining: 0, wait: Duration::from_millis(600), denies: true, ..one(name, family) }
    }

    fn lines(told: &[LimitNumbers<'_>], retry_after: Option<u64>) -> String {
        let mut kept = LimitsTold::new();
        told.iter().for_each(|one| push(&mut kept, bound(*one)));
        let denied = told.iter().any(|one| one.denies);
        let headers = serialize(&kept, retry_after, denied, NOW);
        headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect()
    }

    #[test]
    fn families() {
        let mut table = String::new();
        for family in [Headers::Standard, Headers::Draft03, Headers::Legacy, Headers::LegacyEpoch, Headers::None] {
            let daily = LimitNumbers {
                shown: Shown { units: 1000, period_ns: 86_400 * NANOS_PER_SECOND },
                remaining: 400,
                wait: Duration::from_secs(3_600),
                ..one("daily", family)
            };
            table += &format!("== {family:?}, allowed\n{}", lines(&[one("burst", family), daily], None));
            table += &format!("== {family:?}, denied\n{}", lines(&[denying("burst", family), daily], Some(1)));
            let never = LimitNumbers { never: true, ..denying("burst", family) };
            table += &format!("== {family:?}, denied for ever\n{}", lines(&[never, daily], None));
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn standard_in_odd_cases() {
        let odd = one("burst", Headers::Standard);
        let of_period = |period_ns| LimitNumbers { shown: Shown { units: 5, period_ns }, ..odd };
        let huge = LimitNumbers { shown: Shown { units: u64::MAX, period_ns: 1 }, remaining: u64::MAX, ..odd };
        let cases: [(&str, Vec<LimitNumbers<'_>>); 7] = [
            ("quotes and backslashes", vec![LimitNumbers { name: "a \"b\" \\c", ..odd }]),
            ("not ASCII, and a line break", vec![LimitNumbers { name: "café\r\nx: y", ..odd }]),
            ("half a second", vec![of_period(NANOS_PER_SECOND / 2)]),
            ("a second and a half", vec![of_period(NANOS_PER_SECOND * 3 / 2)]),
            ("beyond the integers of RFC 9651", vec![huge]),
            ("one name twice", vec![odd, LimitNumbers { remaining: 7, ..odd }, LimitNumbers { remaining: 9, ..odd }]),
            ("families beside each other", vec![odd, one("old", Headers::Legacy)]),
        ];
        let table: String = cases.iter().map(|(case, told)| format!("== {case}\n{}", lines(told, None))).collect();
        insta::assert_snapshot!(table);
    }

    #[test]
    fn of_too_many_the_strictest_are_told() {
        let names: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
        let told: Vec<_> = (0u64..)
            .zip(&names)
            .map(|(n, name)| bound(LimitNumbers { remaining: 1000 - n, ..one(name, Headers::Standard) }))
            .collect();
        let mut kept = LimitsTold::new();
        told.iter().for_each(|one| push(&mut kept, *one));
        assert_eq!(kept.len(), POLICIES_TOLD_MAX);
        assert!(kept.iter().all(|one| one.remaining <= 1000 - 100 + POLICIES_TOLD_MAX as u64));
    }

    #[test]
    fn problems() {
        let mut table = String::new();
        for denial in [Denial::OverLimit, Denial::Penalty, Denial::StoreFailure, Denial::CostFailed, Denial::Blocked] {
            for (violated, is_hidden) in [(&["burst", "a \"b\""][..], false), (&[], true)] {
                let (status, body) = problem_of(denial, None, violated, is_hidden);
                table += &format!("{status} {body}\n");
            }
        }
        for is_hidden in [false, true] {
            let (status, body) = problem_of(Denial::OverLimit, Some(Retry::Never), &[], is_hidden);
            table += &format!("{status} {body}\n");
        }
        insta::assert_snapshot!(table);
    }
}

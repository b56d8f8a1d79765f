//! The families of headers, and the format of their values.

use std::cell::Cell;
use std::time::Duration;

use tidegate_core::Time;
use tidegate_policy::{Headers, Shown};

use super::{Header, LimitNumbers, NANOS_PER_SECOND, seconds};

/// The largest integer of RFC 9651.
const INTEGER_MAX: u64 = 999_999_999_999_999;

/// The parameters of `RateLimit-Policy` and `RateLimit`. Drafts differ in little else, so another draft
/// is another table.
struct Draft {
    quota: &'static str,
    window: &'static str,
    remaining: &'static str,
    wait: &'static str,
}

const DRAFT_11: Draft = Draft { quota: ";q=", window: ";w=", remaining: ";r=", wait: ";t=" };

/// Returns the headers about limits. On a denial `RateLimit` lists the limits that deny; `retry_after` is in seconds.
pub fn serialize(told: &[LimitNumbers<'_>], retry_after: Option<u64>, denied: bool, now: Time) -> Vec<Header> {
    let mut headers = Vec::new();
    tell_limits(told, retry_after, denied, &|| now, &mut |name, value| headers.push((name, value.to_owned())));
    headers
}

/// Tells the headers of limits, as [`serialize`] makes them.
pub(super) fn tell_limits(
    told: &[LimitNumbers<'_>],
    retry_after: Option<u64>,
    denied: bool,
    now: &impl Fn() -> Time,
    each: &mut impl FnMut(&'static str, &str),
) {
    for family in [Headers::Standard, Headers::Draft03, Headers::Legacy, Headers::LegacyEpoch] {
        // Of families that tell of one limit, a denial is told by one that denies, or not at all.
        let is_wanted =
            |one: &&LimitNumbers<'_>| one.family == family && (family == Headers::Standard || one.denies || !denied);
        let of_family = told.iter().filter(is_wanted);
        match (family, of_family.clone().min_by_key(|one| one.binding)) {
            (_, None) | (Headers::None, _) => {}
            (Headers::Standard, Some(_)) => standard(&DRAFT_11, of_family, denied, each),
            (Headers::Draft03, Some(strictest)) => draft_03(strictest, each),
            (Headers::Legacy, Some(strictest)) => legacy(strictest, seconds(strictest.wait), each),
            (Headers::LegacyEpoch, Some(strictest)) => {
                let epoch = now().plus(strictest.wait).as_nanos().div_ceil(NANOS_PER_SECOND);
                legacy(strictest, epoch, each);
            }
        }
    }
    if let Some(seconds) = retry_after {
        number("retry-after", seconds, each);
    }
}

fn standard<'t>(
    draft: &Draft,
    told: impl Iterator<Item = &'t LimitNumbers<'t>> + Clone,
    denied: bool,
    each: &mut impl FnMut(&'static str, &str),
) {
    with_text(|value| {
        for one in told.clone() {
            match one.texts {
                Some(texts) => append(value, &texts.policy),
                None => policy(draft, value, one.name, one.shown),
            }
        }
        each("ratelimit-policy", value);
        value.clear();
        for one in told.filter(|one| one.denies || !denied) {
            match one.texts {
                Some(texts) => append(value, &texts.item),
                None => item(value, one.name),
            }
            left(draft, value, one.remaining, (!one.never).then_some(one.wait));
        }
        if !value.is_empty() {
            each("ratelimit", value);
        }
    });
}

fn policy(draft: &Draft, policies: &mut String, name: &str, shown: Shown) {
    item(policies, name);
    parameter(policies, draft.quota, shown.units);
    // A window that is no whole number of seconds cannot be told, and a wrong one helps nobody.
    if shown.period_ns > 0 && shown.period_ns.is_multiple_of(NANOS_PER_SECOND) {
        parameter(policies, draft.window, shown.period_ns / NANOS_PER_SECOND);
    }
}

/// Appends what is left to the item of a limit.
fn left(draft: &Draft, limits: &mut String, remaining: u64, wait: Option<Duration>) {
    parameter(limits, draft.remaining, remaining);
    if let Some(wait) = wait {
        parameter(limits, draft.wait, seconds(wait));
    }
}

/// The texts about a limit that do not change, made once, in the format of the current draft.
#[derive(Debug)]
pub struct LimitTexts {
    policy: Box<str>,
    /// Its name as it begins a member of `RateLimit`.
    item: Box<str>,
}

impl LimitTexts {
    /// Creates the texts of a limit.
    #[must_use]
    pub fn new(name: &str, shown: Shown) -> LimitTexts {
        let (mut policy, mut item) = (String::new(), String::new());
        self::policy(&DRAFT_11, &mut policy, name, shown);
        self::item(&mut item, name);
        LimitTexts { policy: policy.into(), item: item.into() }
    }

    /// Returns the value of `RateLimit-Policy`.
    #[must_use]
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// Passes the value of `RateLimit` for a limit that allows to `make`; for `wait`, see [`super::wait`].
    pub fn with_limit<T>(&self, remaining: u64, wait: Duration, make: impl FnOnce(&str) -> T) -> T {
        with_text(|value| {
            value.push_str(&self.item);
            left(&DRAFT_11, value, remaining, Some(wait));
            make(value)
        })
    }
}

/// Does something with an empty text. Each thread keeps one, so that it mostly has room already: for as many limits as are
/// told of at most.
fn with_text<T>(work: impl FnOnce(&mut String) -> T) -> T {
    thread_local! {
        static TEXT: Cell<String> = const { Cell::new(String::new()) };
    }
    // At the end of a thread there is none.
    let mut text = TEXT.try_with(Cell::take).unwrap_or_default();
    text.clear();
    let done = work(&mut text);
    let _ = TEXT.try_with(|kept| kept.set(text));
    done
}

fn draft_03(one: &LimitNumbers<'_>, each: &mut impl FnMut(&'static str, &str)) {
    let window = one.shown.period_ns.div_ceil(NANOS_PER_SECOND);
    each("ratelimit-limit", &format!("{units}, {units};w={window}", units = one.shown.units));
    number("ratelimit-remaining", one.remaining, each);
    number("ratelimit-reset", seconds(one.wait), each);
}

fn legacy(one: &LimitNumbers<'_>, reset: u64, each: &mut impl FnMut(&'static str, &str)) {
    number("x-ratelimit-limit", one.shown.units, each);
    number("x-ratelimit-remaining", one.remaining, each);
    number("x-ratelimit-reset", reset, each);
}

fn number(name: &'static str, value: u64, each: &mut impl FnMut(&'static str, &str)) {
    each(name, itoa::Buffer::new().format(value));
}

/// Appends a String of RFC 9651 as a member of a List. Such a String is printable ASCII: other bytes are
/// percent-encoded.
fn item(list: &mut String, name: &str) {
    separate(list);
    list.push('"');
    // Most names need no care.
    if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')) {
        list.push_str(name);
    } else {
        for byte in name.bytes() {
            match byte {
                b'"' => list.push_str("\\\""),
                b'\\' => list.push_str("\\\\"),
                b' '..=b'~' => list.push(char::from(byte)),
                _ => list.push_str(&format!("%{byte:02X}")),
            }
        }
    }
    list.push('"');
}

/// Appends a member of a List that is written already.
fn append(list: &mut String, member: &str) {
    separate(list);
    list.push_str(member);
}

/// Parts a member of a List from those before it.
fn separate(list: &mut String) {
    if !list.is_empty() {
        list.push_str(", ");
    }
}

fn parameter(list: &mut String, name: &'static str, value: u64) {
    list.push_str(name);
    list.push_str(itoa::Buffer::new().format(value.min(INTEGER_MAX)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Binding;

    #[test]
    fn one_limit_is_told_as_among_others() {
        let shown = Shown { units: 100, period_ns: 60 * NANOS_PER_SECOND };
        let wait = Duration::from_millis(29_001);
        let binding = Binding::new(true, tidegate_core::Strictness::new(true, 50, wait));
        let family = Headers::Standard;
        let (denies, never) = (false, false);
        let name = "a \"b\" \\ \u{e9}";
        let made = LimitTexts::new(name, shown);
        assert_eq!(made.policy(), r#""a \"b\" \\ %C3%A9";q=100;w=60"#);
        let limit = made.with_limit(50, wait, str::to_owned);
        assert_eq!(limit, r#""a \"b\" \\ %C3%A9";r=50;t=30"#);
        let expected = [("ratelimit-policy", made.policy().to_owned()), ("ratelimit", limit)];
        for texts in [None, Some(&made)] {
            let one = LimitNumbers { name, shown, texts, remaining: 50, wait, denies, never, binding, family };
            assert_eq!(serialize(&[one], None, false, Time::from_nanos(0)), expected);
            let twice = expected.clone().map(|(name, value)| (name, format!("{value}, {value}")));
            assert_eq!(serialize(&[one, one], None, false, Time::from_nanos(0)), twice);
        }
    }
}

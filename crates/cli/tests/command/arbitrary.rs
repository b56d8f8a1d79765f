//! Whatever comes in, `tidegate decide` answers each line that is not blank with one line, and goes on.

use proptest::prelude::*;

use super::decide;

/// Any bytes that stay one line.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>().prop_filter("a line has no newline", |byte| *byte != b'\n'), 0..80)
}

/// Numbers where arithmetic could break, and plain ones.
fn number() -> BoxedStrategy<String> {
    prop_oneof![
        3 => (0..10_u64).prop_map(|number| number.to_string()),
        3 => (0..5_000_000_000_u64).prop_map(|number| number.to_string()),
        2 => (0..64_u32, -1..=1_i64).prop_map(|(power, off)| (1_u64 << power).wrapping_add_signed(off).to_string()),
        1 => any::<u64>().prop_map(|number| number.to_string()),
        1 => prop::sample::select(vec!["-1", "0.5", "1e400", "null", "\"5\""]).prop_map(str::to_owned),
    ]
    .boxed()
}

fn limit() -> BoxedStrategy<String> {
    let bucket = ("gcra|token_bucket|leaky_bucket", "burst|capacity", number(), number(), number()).prop_map(
        |(algorithm, size_name, rate, per_ns, size)| {
            format!(r#"{{"algorithm":"{algorithm}","rate":{rate},"per_ns":{per_ns},"{size_name}":{size}}}"#)
        },
    );
    let window = ("fixed_window|sliding_log|sliding_counter|sliced_window", number(), number()).prop_map(
        |(algorithm, limit, window_ns)| {
            format!(r#"{{"algorithm":"{algorithm}","limit":{limit},"window_ns":{window_ns}}}"#)
        },
    );
    let sliced = (number(), number(), number()).prop_map(|(limit, window_ns, slices)| {
        format!(r#"{{"algorithm":"sliced_window","limit":{limit},"window_ns":{window_ns},"slices":{slices}}}"#)
    });
    let text = (number(), "(second|2m|day|month|200y|)").prop_map(|(units, period)| format!("\"{units}/{period}\""));
    prop_oneof![bucket, window, sliced, text].boxed()
}

/// Lines that are nearly always operations.
fn operation() -> BoxedStrategy<Vec<u8>> {
    let set = ("new|limit", limit()).prop_map(|(op, limit)| format!(r#"{{"op":"{op}","limit":{limit}}}"#));
    let plain = ("charge|debit|refund", number(), number())
        .prop_map(|(op, at_ns, cost)| format!(r#"{{"op":"{op}","at_ns":{at_ns},"cost":{cost}}}"#));
    let receipt = (number(), number(), number()).prop_map(|(at_ns, cost, receipt)| {
        format!(r#"{{"op":"refund","at_ns":{at_ns},"cost":{cost},"receipt":{receipt}}}"#)
    });
    let look = ("peek|reset", number(), "[ab]{0,2}")
        .prop_map(|(op, at_ns, key)| format!(r#"{{"op":"{op}","at_ns":{at_ns},"key":"{key}"}}"#));
    prop_oneof![1 => set, 4 => plain, 1 => receipt, 1 => look].prop_map(String::into_bytes).boxed()
}

/// A line is cut short, or has a byte replaced.
fn broken() -> impl Strategy<Value = Vec<u8>> {
    (operation(), any::<prop::sample::Index>(), any::<Option<u8>>()).prop_map(|(mut line, at, byte)| {
        let at = at.index(line.len());
        match byte {
            Some(byte) if byte != b'\n' => line[at] = byte,
            _ => line.truncate(at),
        }
        line
    })
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![1 => bytes(), 6 => operation(), 1 => broken()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_answer_a_line(lines in prop::collection::vec(line(), 0..60)) {
        let asked = lines.iter().filter(|line| !line.trim_ascii().is_empty()).count();
        let answers = decide(&lines.join(&b'\n'));
        prop_assert_eq!(answers.len(), asked);
        for answer in &answers {
            let starts = ["{\"ok\":true", "{\"allowed\":", "{\"error\":\""];
            let is_known = starts.iter().any(|start| answer.starts_with(start)) && answer.ends_with('}');
            prop_assert!(is_known, "{}", answer);
        }
    }
}

//! A good conversation with every algorithm, and with every operation.

use insta::assert_snapshot;

use super::conversation;

/// Five at once, a sixth denied, on time, one nanosecond early, far too much, and idle again: whatever the algorithm,
/// these are the answers its users look at.
fn check(name: &str, limit: &str) {
    let charges = r#"
        {"op":"charge","at_ns":100000000}
        {"op":"charge","at_ns":100000000,"cost":3}
        {"op":"charge","at_ns":300000000}
        {"op":"charge","at_ns":300000000}
        {"op":"charge","at_ns":500000000,"cost":0}
        {"op":"charge","at_ns":500000000,"cost":2}
        {"op":"charge","at_ns":999999999,"cost":5}
        {"op":"charge","at_ns":1000000000,"cost":5}
        {"op":"charge","at_ns":1100000000,"cost":5}
        {"op":"charge","at_ns":1200000000,"cost":6}
        {"op":"charge","at_ns":9000000000}
    "#;
    assert_snapshot!(name, conversation(&format!(r#"{{"op":"new","limit":{limit}}}{charges}"#)));
}

#[test]
fn gcra() {
    check("gcra", r#"{"algorithm":"gcra","rate":10,"per_ns":1000000000,"burst":5}"#);
}

#[test]
fn token_bucket() {
    check("token_bucket", r#"{"algorithm":"token_bucket","rate":10,"per_ns":1000000000,"capacity":5}"#);
}

#[test]
fn leaky_bucket() {
    check("leaky_bucket", r#"{"algorithm":"leaky_bucket","rate":10,"per_ns":1000000000,"capacity":5}"#);
}

#[test]
fn fixed_window() {
    check("fixed_window", r#"{"algorithm":"fixed_window","limit":5,"window_ns":1000000000}"#);
}

#[test]
fn sliding_log() {
    check("sliding_log", r#"{"algorithm":"sliding_log","limit":5,"window_ns":1000000000}"#);
}

#[test]
fn sliding_counter() {
    check("sliding_counter", r#"{"algorithm":"sliding_counter","limit":5,"window_ns":1000000000}"#);
}

#[test]
fn sliced_window() {
    check("sliced_window", r#"{"algorithm":"sliced_window","limit":5,"window_ns":1000000000,"slices":10}"#);
}

#[test]
fn text() {
    check("text", r#""5/second""#);
}

#[test]
fn the_answer_to_a_first_charge_is_exactly_this() {
    let limit = r#"{"algorithm":"gcra","rate":10,"per_ns":1000000000,"burst":5}"#;
    let new = format!(r#"{{"op":"new","limit":{limit}}}"#);
    let answers = super::decide([&new, r#"{"op":"charge","at_ns":0,"cost":1}"#].join("\n").as_bytes());
    let charged = r#"{"allowed":true,"limit":5,"remaining":4,"retry_after_ns":null,"reset_after_ns":100000000}"#;
    assert_eq!(answers, [r#"{"ok":true}"#, charged]);
}

#[test]
fn every_operation() {
    assert_snapshot!(conversation(
        r#"
        {"op":"new","limit":{"algorithm":"gcra","rate":1,"per_ns":1000000000,"burst":4}}
        {"op":"charge","at_ns":0,"cost":3,"want_receipt":true}
        {"op":"charge","at_ns":0,"cost":2,"want_receipt":true}
        {"op":"refund","at_ns":0,"cost":1,"receipt":3000000000}
        {"op":"peek","at_ns":0}
        {"op":"debit","at_ns":0,"cost":4,"want_receipt":true}
        {"op":"charge","at_ns":0}
        {"op":"refund","at_ns":0}
        {"op":"reset","at_ns":0}
        "#
    ));
}

#[test]
fn keys_count_by_themselves() {
    assert_snapshot!(conversation(
        r#"
        {"op":"new","limit":"2/second"}
        {"op":"charge","at_ns":0,"key":"ann","cost":2}
        {"op":"charge","at_ns":0,"key":"bob"}
        {"op":"charge","at_ns":0}
        {"op":"peek","at_ns":0,"key":"default"}
        {"op":"peek","at_ns":0,"key":"b\u006fb"}
        {"op":"peek","at_ns":0,"key":"ann"}
        "#
    ));
}

#[test]
fn a_changed_limit_keeps_the_state_and_a_new_one_forgets_it() {
    assert_snapshot!(conversation(
        r#"
        {"op":"new","limit":{"algorithm":"fixed_window","limit":5,"window_ns":1000000000}}
        {"op":"charge","at_ns":0,"cost":4}
        {"op":"limit","limit":{"algorithm":"fixed_window","limit":8,"window_ns":1000000000}}
        {"op":"peek","at_ns":0}
        {"op":"limit","limit":{"algorithm":"fixed_window","limit":8,"window_ns":2000000000}}
        {"op":"peek","at_ns":0}
        {"op":"limit","limit":{"algorithm":"fixed_window","limit":8,"window_ns":1000000000}}
        {"op":"peek","at_ns":0}
        {"op":"new","limit":{"algorithm":"fixed_window","limit":8,"window_ns":1000000000}}
        {"op":"peek","at_ns":0}
        "#
    ));
}

#[test]
fn a_new_that_fails_changes_nothing() {
    assert_snapshot!(conversation(
        r#"
        {"op":"new","limit":"2/second"}
        {"op":"charge","at_ns":0}
        {"op":"new","limit":"0/second"}
        {"op":"limit","limit":"0/second"}
        {"op":"charge","at_ns":0}
        "#
    ));
}

#[test]
fn staggered_keys_have_seams_of_their_own() {
    assert_snapshot!(conversation(
        r#"
        {"op":"new","limit":{"algorithm":"fixed_window","limit":1,"window_ns":1000000000,"stagger":true}}
        {"op":"charge","at_ns":5000000000,"key":"ann"}
        {"op":"charge","at_ns":5000000000,"key":"bob"}
        {"op":"new","limit":{"algorithm":"fixed_window","limit":1,"window_ns":1000000000,"stagger":false}}
        {"op":"charge","at_ns":5000000000,"key":"ann"}
        {"op":"charge","at_ns":5000000000,"key":"bob"}
        "#
    ));
}

#[test]
fn the_guide_shows_what_is_answered() {
    let page = include_str!("../../../../docs/src/decide.md");
    let (_, shown) = page.split_once("$ tidegate decide <<'END'\n").unwrap();
    let (questions, answers) = shown.split_once("END\n").unwrap();
    let (answers, _) = answers.split_once("```").unwrap();
    assert_eq!(super::decide(questions.as_bytes()), answers.lines().collect::<Vec<_>>());
}

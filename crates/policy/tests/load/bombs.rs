//! Files that are made to do harm end soon, with a message.

use insta::assert_snapshot;
use tidegate_core::Clock;

use super::{load, told};

/// What is said. What is not bounded would take hours, so the time is one that a busy machine keeps too.
fn soon(text: &str) -> String {
    let clock = Clock::system();
    let start = clock.now();
    let said = told(&load(text));
    let taken = clock.now().as_nanos() - start.as_nanos();
    assert!(taken < 30_000_000_000, "{taken} ns for {} bytes", text.len());
    said
}

#[test]
fn aliases_of_aliases() {
    let mut laughs = String::from("a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha, ha]\n");
    for level in 1..30 {
        let before = format!("*a{}, ", level - 1).repeat(10);
        laughs.push_str(&format!("a{level}: &a{level} [{before}]\n"));
    }
    assert_snapshot!(soon(&laughs));
    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), "*a, ".repeat(100_000));
    assert_snapshot!(soon(&long));
}

#[test]
fn anchors_in_anchors() {
    let open: String = (0..60).map(|level| format!("&a{level} [")).collect();
    let text = format!("domains: {open}{}{}", "x, ".repeat(50_000), "]".repeat(60));
    assert_snapshot!(soon(&text));
}

#[test]
fn merges_of_merges() {
    let mut text = String::from("a0: &a0 {k0: 1}\n");
    for level in 1..5_000 {
        text.push_str(&format!("a{level}: &a{level} {{<<: *a{}, k{level}: 1}}\n", level - 1));
    }
    assert_snapshot!(soon(&text));
}

#[test]
fn nesting() {
    assert_snapshot!(soon(&"[".repeat(100_000)));
    assert_snapshot!(soon(&"{a: ".repeat(100_000)));
    assert_snapshot!(soon(&"- ".repeat(100_000)));
    let chain: String = (1..200).map(|level| format!("a{level}: &a{level} [*a{}]\n", level - 1)).collect();
    assert_snapshot!(soon(&format!("a0: &a0 [x]\n{chain}")));
}

#[test]
fn size() {
    assert_snapshot!(soon(&format!("domains: {{}}\n#{}", "x".repeat(10 << 20))));
    assert_snapshot!(soon(&format!("domains: [{}]", "1,".repeat(2_000_000))));
}

#[test]
fn many_wildcards_beside_each_other() {
    let many: String = (0..20_000).map(|number| format!("- {{key: a, value: 'x{number}*'}}\n")).collect();
    assert_snapshot!(soon(&format!("domain: edge\ndescriptors:\n{many}")));
}

#[test]
fn one_descriptor_many_times() {
    // Both alone and beside as many values, which each of them excepts.
    let limit = "rate_limit: {unit: minute, requests_per_unit: 1}";
    for values in [0, 8_000] {
        let mut text = String::from("domain: x\ndescriptors:\n");
        for value in 0..values {
            text.push_str(&format!("- {{key: k, value: v{value}, {limit}}}\n"));
        }
        text.push_str(&format!("- {{key: k, {limit}}}\n").repeat(8_000));
        let said = soon(&text);
        assert!(said.contains("duplicate descriptor: key `k` with no value"), "{said}");
        assert!(said.contains("more problems"), "{said}");
    }
}

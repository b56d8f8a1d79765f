//! The rules that `make run` starts with.

use tidegate_policy::{LoadOptions, load};
use tidegate_testkit::repository::root;

#[test]
fn they_load_without_a_word() {
    let loaded = load(&[root().join("examples/tidegate.yaml")], &LoadOptions::default());
    let said: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
    assert_eq!(said, [""; 0]);
    assert!(loaded.policy.is_some());
}

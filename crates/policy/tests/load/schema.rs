//! The JSON Schema and the reference made of it.

use insta::assert_snapshot;
use tidegate_policy::json_schema::{json_schema, reference_markdown};

#[test]
fn the_schema() {
    assert_snapshot!(format!("{:#}", json_schema()));
}

#[test]
fn the_reference() {
    assert_snapshot!(reference_markdown());
}

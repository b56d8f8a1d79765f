//! A gRPC client in Python, made of Envoy's own messages.

use insta::assert_snapshot;
use tidegate_testkit::process::printed;
use tidegate_testkit::tidegate::Tidegate;
use tidegate_testkit::wait::not_at_the_end_of_a_minute;

use crate::clients::python;

#[test]
fn a_generated_client() {
    let tidegate = Tidegate::with_examples();
    not_at_the_end_of_a_minute();
    assert_snapshot!(printed(&mut python("grpc_client.py", &[&tidegate.grpc.to_string()])));
}

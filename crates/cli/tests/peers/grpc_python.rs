//! A gRPC client in Python, made of Envoy's own messages.

use insta::assert_snapshot;

use crate::process::{not_at_the_end_of_a_minute, printed, python};
use crate::tidegate::Tidegate;

#[test]
fn a_generated_client() {
    let tidegate = Tidegate::with_examples();
    not_at_the_end_of_a_minute();
    assert_snapshot!(printed(&mut python("grpc_client.py", &[&tidegate.grpc.to_string()])));
}

//! curl, as the examples use it.

use tidegate_testkit::tidegate::Tidegate;

use crate::readme;

#[test]
fn every_command_prints_what_is_shown() {
    let tidegate = Tidegate::with_examples();
    readme::check("curl/README.md", &[("localhost:8080", &tidegate.http.to_string())]);
}

//! The scripts of `clients/`.

use std::path::Path;
use std::process::Command;

use tidegate_testkit::process::command;
use tidegate_testkit::repository::venv;

/// Returns the command that runs a script with the Python that `make peers` installed.
pub(crate) fn python(script: &str, arguments: &[&str]) -> Command {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/clients").join(script);
    let mut all = vec!["-u", path.to_str().unwrap()];
    all.extend(arguments);
    command(venv("python"), &all)
}

//! Files of the repository, and programs that `make peers` installed.

use std::path::{Path, PathBuf};

/// Returns the root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

/// Returns the text of a file of `examples/` with parts of it replaced, such as ports.
///
/// # Panics
/// If the file does not contain a part that is to be replaced.
pub fn example(path: &str, replaced: &[(&str, &str)]) -> String {
    let mut text = std::fs::read_to_string(root().join("examples").join(path)).unwrap();
    for (from, to) in replaced {
        assert!(text.contains(from), "examples/{path} has no `{from}`");
        text = text.replace(from, to);
    }
    text
}

/// Returns the path of a program that `make peers` installed from PyPI.
///
/// # Panics
/// If it is missing.
pub fn venv(program: &str) -> PathBuf {
    let path = root().join("target/peers/venv/bin").join(program);
    assert!(path.exists(), "{} is missing; `make peers` installs it", path.display());
    path
}

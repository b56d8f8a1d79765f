//! `cargo bench -p tidegate-bench`: one interleaved run of Tidegate beside its peers.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidegate_bench::run()
}

//! `make bench BENCH=matching`: from a request to its rules among ten thousand.

fn main() {
    tidegate_bench::matching();
}

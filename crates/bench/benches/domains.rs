//! `make bench BENCH=domains`: a domain in memory, with and without one on Redis beside it.

fn main() {
    tidegate_bench::domains();
}

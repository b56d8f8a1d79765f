//! `make bench BENCH=layers`: what each layer adds to a request.

fn main() {
    tidegate_bench::layers();
}

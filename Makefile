# The commands of this project. `make` without a target lists them.

SHELL := /bin/bash
.DEFAULT_GOAL := help
# The directory of cargo, for shells that were open before rustup installed it.
export PATH := $(PATH):$(HOME)/.cargo/bin
BUILT := $(or $(CARGO_TARGET_DIR),target)/release
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

.PHONY: help run demo test soak compare bench bench-server bench-redis fuzz lint-bench clean peers rust compiler components

help: ## list these targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

run: rust compiler ## build Tidegate and serve with the rules of examples/tidegate.yaml
	@cargo build --locked --release --package tidegate-cli
	@$(BUILT)/tidegate serve --config examples/tidegate.yaml

demo: rust compiler ## build Tidegate and show what a rate limiter does (15 seconds in a terminal)
	@cargo build --locked --release --package tidegate-cli
	@$(BUILT)/tidegate demo

test: rust compiler components peers ## check formatting, lints, tests, doc examples and thread interleavings
	cargo fmt --all --check
	cargo clippy --locked --all-targets -- --deny warnings
	cargo test --locked
	RUSTFLAGS="--cfg shuttle" cargo test --locked --release --package tidegate-core --test shuttle --target-dir target/shuttle
	RUSTDOCFLAGS="--deny warnings" cargo doc --locked --no-deps

soak: rust compiler peers ## run the slow and heavy tests of the server, for some minutes; `partition` needs root (SOAK="crowd stops overload outage": only these)
	$(if $(filter-out overload outage,$(or $(SOAK),all)),cargo test --locked --release --package tidegate-cli --test soak -- $(filter-out overload outage,$(SOAK)))
	$(if $(filter overload,$(or $(SOAK),overload)),TIDEGATE_OVERLOAD_REPEATS=20 cargo test --locked --release --package tidegate-cli --test redis -- overload:: --nocapture --test-threads 1)
	$(if $(filter outage,$(or $(SOAK),outage)),TIDEGATE_OUTAGE_REPEATS=10 cargo test --locked --release --package tidegate-cli --test redis -- outage:: --nocapture --test-threads 1)

compare: rust compiler peers ## compare the answers of two builds: BEFORE=path/to/old/tidegate (AFTER=path REQUESTS=200000 SEED=1 COMPARE="--help")
	@[ -n "$(BEFORE)" ] || { echo "BEFORE is not set; run make compare BEFORE=path/to/old/tidegate" >&2; exit 1; }
	@[ -n "$(AFTER)" ] || cargo build --locked --release --package tidegate-cli
	@target/peers/venv/bin/python -B scripts/compare/compare.py "$(BEFORE)" "$(or $(AFTER),$(BUILT)/tidegate)" \
		--requests $(or $(REQUESTS),200000) --seed $(or $(SEED),1) $(COMPARE)

bench: rust compiler ## compare Tidegate with other rate limiters (BENCH=layers: tower layers; BENCH=matching: 10,000 rules and a linear scan; BENCH=domains: a domain in memory with and without one on Redis)
	cargo bench --locked --package tidegate-bench --bench $(or $(BENCH),compare)

bench-server: rust compiler ## compare the server with redis-server, throttlecrab-server, bare hyper and bare tonic, and its stores (BENCH="--only redis": only stores in Redis; BENCH=--help)
	@for need in redis-server:redis-server redis-benchmark:redis-tools wrk:wrk h2load:nghttp2-client strace:strace protoc:protobuf-compiler; do \
		command -v $${need%:*} >/dev/null || { echo "$${need%:*} is missing: installing $${need#*:}"; \
			$(SUDO) apt-get install --quiet --yes $${need#*:}; }; \
	done
	$(if $(findstring --only redis,$(BENCH)),,cargo install --locked --quiet --root target/peers throttlecrab-server)
	cargo build --locked --release --package tidegate-cli --package tidegate-bench-server
	$(BUILT)/bench-server $(BENCH)

bench-redis: rust compiler ## measure the CPU and memory that the store costs Redis, and the calls that leases save (BENCH="--only memory": only this part; BENCH=--help)
	@command -v redis-server >/dev/null || { echo "redis-server is missing: installing it"; $(SUDO) apt-get install --quiet --yes redis-server; }
	cargo run --locked --release --package tidegate-bench-server --bin bench-redis -- $(BENCH)

fuzz: rust compiler ## feed random bytes to the parsers, for one minute each (FUZZ_SECONDS=n: for n seconds); needs a nightly compiler
	@cargo fuzz --version >/dev/null 2>&1 || { echo "cargo-fuzz is missing: installing it"; cargo install --locked --quiet cargo-fuzz; }
	for target in resp config expression; do \
		cargo +nightly fuzz run $$target -- -max_total_time=$${FUZZ_SECONDS:-60} -rss_limit_mb=2048 || exit 1; \
	done

lint-bench: rust compiler components ## check the lints of the bench crates (this builds all peers)
	cargo clippy --locked --package tidegate-bench --package tidegate-bench-server --all-targets -- --deny warnings

peers: ## install the programs that the tests need: Envoy, nginx, Caddy, Redis, and Redis and gRPC clients
	@scripts/peers/install

clean: rust ## remove build results
	cargo clean

rust:
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust from https://rustup.rs and run make again" >&2; exit 1; }

compiler:
	@command -v cc >/dev/null || { \
		command -v apt-get >/dev/null || { echo "cc is missing: install a C compiler, such as gcc, and run make again" >&2; exit 1; }; \
		echo "cc is missing: installing build-essential"; \
		$(SUDO) apt-get update --quiet && $(SUDO) apt-get install --quiet --yes build-essential; \
	}

components: rust
	@{ cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1 || { \
		command -v rustup >/dev/null || { echo "rustfmt or clippy is missing: install Rust from https://rustup.rs and run make again" >&2; exit 1; }; \
		echo "rustfmt or clippy is missing: installing both"; \
		rustup component add rustfmt clippy; \
	}

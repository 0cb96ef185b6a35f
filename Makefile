# Everything a person or CI does here is a target; `make` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
NAME ?= lab
NODES ?= 3
LAB := target/debug/lab

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Walk through the tutorial on a lab of its own, or with KUBECONFIG=… on yours (FAST=1, DEMO=interactive; root)
	hack/demo.sh

.PHONY: clean-demo
clean-demo: ## Remove what the demo made
	hack/clean-demo.sh

.PHONY: build
build: ## Build all programs, as tests use them
	cargo build --workspace --bins

.PHONY: test
test: ## Run all tests: lint, unit, real API server, whole lab; installs what it needs (root)
	hack/test.sh

# Labs of these go when they end, however that is: hack/with-labs.sh takes down those of LAB_TEST_NAME.
.PHONY: prove
prove: ## Catch every mutant, try every fault at every point and every death at every step, then ask the model checker with large bounds (STATES=1000000 of each question at most; hours; root)
	cargo build --workspace --bins
	hack/mutants.sh
	$(MAKE) faults
	LAB_TEST_NAME=deaths hack/with-labs.sh cargo test -p etcd-operator --test e2e -- --ignored --nocapture --test-threads=1 all_at_each_step
	target/debug/prove ask --large --threads 2 --at-most $(or $(STATES),1000000)

.PHONY: faults
faults: ## Try every fault at every point of both operators' work, on an API server of its own (an hour or two; root)
	cargo build --workspace --bins
	LAB_TEST_NAME=faults FAULTS=all hack/with-labs.sh cargo test -p etcd-operator --test proof -- --nocapture --test-threads=1
	LAB_TEST_NAME=faults FAULTS=all hack/with-labs.sh cargo test -p nginx-operator --test apiserver -- --nocapture faults:: storage:: specs::

.PHONY: scenarios
scenarios: ## Run every scenario of both operators on the lab, the long ones and the ones under work too (root)
	cargo build --workspace --bins
	LAB_TEST_NAME=scenarios RUST_BACKTRACE=0 hack/with-labs.sh cargo test -p etcd-operator -p nginx-operator --tests --no-fail-fast -- --test-threads=2

.PHONY: chaos
chaos: ## Troubles of every kind on the lab while clients write: SECONDS=300 SEED=…, or several by commas, which share the time (root)
	cargo build --workspace --bins
	LAB_TEST_NAME=chaos CHAOS_SECONDS=$(or $(SECONDS),300) $(if $(SEED),CHAOS_SEED=$(SEED)) hack/with-labs.sh cargo test --workspace --test e2e -- --nocapture chaos::

.PHONY: lint
lint: fmt clippy deny ## Check format, lints, licences and sources

.PHONY: fmt
fmt:
	cargo fmt --all --check

.PHONY: clippy
clippy:
	cargo clippy --workspace --all-targets --all-features -- -D warnings

# Every target compiles, also those that are built for long alone. Nothing is linked, so that libFuzzer need not be there.
.PHONY: fuzz-check
fuzz-check:
	CUSTOM_LIBFUZZER_PATH=/dev/null cargo check -q --manifest-path fuzz/Cargo.toml --locked --features kubernetes --bins

.PHONY: deny
deny:
	hack/deny.sh

.PHONY: generate
generate: ## Write everything anew that is made: CRDs, install files, chart, bundles, reference pages
	cargo build -q --workspace --bins
	target/debug/manifests .

.PHONY: bundle
bundle: generate ## Write the bundles and the catalog for the Operator Lifecycle Manager anew, into bundle/

.PHONY: alerts
alerts:
	promtool check rules deploy/prometheus/alerts.yaml
	promtool test rules deploy/prometheus/alerts.test.yaml

.PHONY: release
release: ## Build programs, images, lists of their parts and checksums into target/dist
	hack/release.sh

.PHONY: lab
lab:
	@cargo build -q --workspace --bins

.PHONY: lab-up
lab-up: lab ## Bring a lab up (NAME=lab NODES=3; root)
	$(LAB) up --name $(NAME) --nodes $(NODES)

.PHONY: lab-down
lab-down: lab ## Remove a lab, all of it (NAME=lab)
	$(LAB) down --name $(NAME)

.PHONY: lab-kubeconfig
lab-kubeconfig: lab ## Print where a lab's kubeconfig is (NAME=lab)
	@$(LAB) kubeconfig --name $(NAME)

.PHONY: lab-aws-dir
lab-aws-dir: lab ## Print the folder with AWS files for a lab's S3 server (NAME=lab)
	@$(LAB) aws-dir --name $(NAME)

.PHONY: fuzz
fuzz: ## Fuzz what reads foreign bytes, each target for so long (SECONDS=600)
	hack/fuzz.sh $(SECONDS)

.PHONY: bench
bench: ## Measure the operator beside bare pods, against its budgets (BENCH=--quick for a short look; root)
	hack/bench.sh $(BENCH)

.PHONY: bench-lab
bench-lab: lab ## Measure the lab: time to ready, load and memory at rest
	hack/bench-lab.sh

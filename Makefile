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
demo: ## Show the etcd operator at work on a lab of its own (FAST=1: no pauses; root)
	hack/demo.sh

.PHONY: clean-demo
clean-demo: lab ## Remove the demo's lab
	$(LAB) down --name demo

.PHONY: build
build: ## Build all programs, as tests use them
	cargo build --workspace --bins

.PHONY: test
test: ## Run all tests: lint, unit, real API server, whole lab; installs what it needs (root)
	hack/test.sh

.PHONY: prove
prove: ## Ask the model checker with large bounds, and show that it catches every mutant (an hour or so)
	cargo build -p model
	target/debug/prove ask --large --threads 2
	hack/mutants.sh

.PHONY: scenarios
scenarios: ## Run every scenario of both operators on the lab, the long ones and the ones under work too (root)
	cargo build --workspace --bins
	LAB_TEST_NAME=scenarios RUST_BACKTRACE=0 cargo test -p etcd-operator -p nginx-operator --tests --no-fail-fast -- --test-threads=2

.PHONY: chaos
chaos: ## Troubles of every kind on the lab while clients write: SECONDS=300 SEED=… (root)
	cargo build --workspace --bins
	LAB_TEST_NAME=chaos CHAOS_SECONDS=$(or $(SECONDS),300) $(if $(SEED),CHAOS_SEED=$(SEED)) cargo test --workspace --test e2e -- --nocapture chaos::

.PHONY: lint
lint: fmt clippy deny ## Check format, lints, licences and sources

.PHONY: fmt
fmt:
	cargo fmt --all --check

.PHONY: clippy
clippy:
	cargo clippy --workspace --all-targets --all-features -- -D warnings

.PHONY: deny
deny:
	hack/deny.sh

.PHONY: generate
generate: ## Write CRDs and manifests anew from the types
	cargo run -q -p api --example crds -- .
	cargo run -q -p nginx-operator --example files -- .

.PHONY: bundle
bundle: generate ## Write the bundles and catalogs of both operators for the Operator Lifecycle Manager anew
	cargo run -q -p bundle -- .

.PHONY: lab
lab:
	@cargo build -q -p lab

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
fuzz: ## Fuzz the reader of snapshots (SECONDS=600)
	hack/fuzz.sh $(SECONDS)

.PHONY: bench
bench: ## Measure the operator beside bare pods, against its budgets (BENCH=--quick for a short look; root)
	hack/bench.sh $(BENCH)

.PHONY: bench-lab
bench-lab: lab ## Measure the lab: time to ready, load and memory at rest
	hack/bench-lab.sh

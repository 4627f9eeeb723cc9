# Zonewise. "make help" lists what there is; the work is done by the scripts in hack/.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# One compiler setting for all that is built, so that it shares one cache (ADR 0024).
export CGO_ENABLED ?= 0
export GOFLAGS ?= -buildvcs=false -trimpath
export GOWORK := off

BIN := bin

# Flags of the demo, as in: make demo DEMO_FLAGS=--keep
DEMO_FLAGS ?=
IMAGE_FLAGS ?=
RELEASE_FLAGS ?=
# What "make bench-e2e" measures, as in: make bench-e2e RUNS=1 CASES=TopologySpreading,SpreadPodsBefore
RUNS ?= 1
CASES ?=
# How many turns the variants of a case take against one another, on clusters that are new in each of the RUNS.
TURNS ?= 6
WORKLOAD ?=
# How long "make chaos" disturbs the schedulers, and what its faults follow from.
DURATION ?= 5m
SEED ?= 1
# How many worlds "make worlds" plays, from the one of SEED on.
N ?= 100
# What "make line" does: tree, build, plugins, test.
STEPS ?=
# A file with what stands in for modules that a pre-release requires, see hack/upgrade-k8s.sh.
export REPLACE ?=
# Arguments of go test, as in: make integration TEST_ARGS='-run TestPermitGate'
export TEST_ARGS ?=
BENCH_GROUPS ?=

##@ Use

.PHONY: demo
demo: ## Run the demo: a control plane on loopback, a workload over three zones, a closing board (DEMO_FLAGS=)
	@hack/controlplane/build.sh demo
	@hack/build.sh demo
	@$(BIN)/zonewise-demo --report dist/demo-report.html $(DEMO_FLAGS)

.PHONY: image
image: need-go ## Build an OCI image of the scheduler, no daemon needed (IMAGE_FLAGS=)
	@cd hack/image && go run . $(IMAGE_FLAGS)

.PHONY: release
release: need-go ## Write a release to dist/VERSION: images, charts, manifests, programs (VERSION=v0.1.0 RELEASE_FLAGS='-key cosign.key')
	@cd hack/release && go run . build -version '$(VERSION)' $(RELEASE_FLAGS)

##@ Build

.PHONY: build
build: need-go ## Build bin/zonewise-scheduler and bin/zonewise (VERSION=1.2.3 stamps a version and the commit)
	@hack/build.sh

.PHONY: controlplane
controlplane: ## Build what tests run into bin/: etcd, kube-apiserver, kubectl and a few controllers (skips what is current)
	@hack/controlplane/build.sh tests

.PHONY: clean
clean: ## Remove bin/ and dist/ (the Go build cache stays)
	rm -rf bin dist

##@ Test

.PHONY: test
test: ## Run the tests that a change needs, against the control plane built here (FRESH=1: also what has not changed)
	@hack/test.sh

.PHONY: race
race: ## Run a short form under the race detector, of the packages in which goroutines of ours meet
	@hack/test.sh controlplane race

.PHONY: test-all
test-all: ## Run every test, none from the cache: "make test", its long forms, "make race", the tests of the tools, and each line
	@hack/test.sh controlplane all race modules scripts
	@hack/line.sh all build test

.PHONY: line
line: ## Build and test Zonewise for another version of Kubernetes (VERSION=v1.36.3 STEPS='build test'; all of released versions without VERSION)
	@hack/line.sh $(or $(VERSION),all) $(STEPS)

.PHONY: unit
unit: ## Run the fast part: unit and property tests that need no scheduler
	@hack/test.sh unit

.PHONY: integration
integration: ## Run test/integration against a real API server (TEST_ARGS='-run ...')
	@hack/test.sh controlplane integration

.PHONY: e2e
e2e: ## Run upstream's end-to-end tests of sig-scheduling with kube-scheduler and with Zonewise (TEST_ARGS='-focus Preemption')
	@hack/controlplane/build.sh demo kube-controller-manager
	@go -C test/e2e test -v -count=1 -timeout 90m . $(TEST_ARGS)

.PHONY: bench
bench: need-go ## Run the benchmarks, with tables of ratios (BENCH_GROUPS='zonespread ledger', all when empty)
	@hack/bench.sh $(BENCH_GROUPS)

.PHONY: bench-e2e
bench-e2e: controlplane ## Compare whole schedulers with upstream's scheduler_perf; results add up (RUNS=1 TURNS=6 CASES= WORKLOAD=)
	@cd test/performance/e2e && go run . -runs '$(RUNS)' -turns '$(TURNS)' -cases '$(CASES)' -workload '$(WORKLOAD)'
	@$(MAKE) --no-print-directory bench-e2e-table

.PHONY: bench-e2e-table
bench-e2e-table: need-go ## Print what "make bench-e2e" has measured so far
	@go tool -modfile=hack/tools/benchstat/go.mod benchstat -table /set -row .name -col /series .cache/bench-e2e/turns.txt

.PHONY: chaos
chaos: controlplane ## Kill, stop and cut off two schedulers under load, and judge the recorded history (DURATION=5m SEED=1)
	@go run ./test/chaos/run -duration '$(DURATION)' -seed '$(SEED)'

.PHONY: histories
histories: need-go ## Have a ZoneRebalance and the descheduler live through the same days of clusters in memory
	@go test ./cmd/controller/rebalance -count=1 -v -timeout 1h \
		-run 'TestADay|TestTraceZoneReturns|TestAutoscaledDay|TestDriftedClusters|TestDescheduler' -args -descheduler

.PHONY: soak
soak: need-go ## Run the property tests for long (SOAK_CHECKS=20000 cases each)
	@hack/test.sh soak

.PHONY: worlds
worlds: need-go ## Play random worlds of the whole pack in virtual time, and shrink those that break an invariant (SEED=1 N=100)
	@go test ./test/worlds -run '^TestWorlds$$' -count=1 -timeout 24h -args -seed '$(SEED)' -worlds '$(N)'

.PHONY: site
site: ## Write the documents as a site to dist/site
	@hack/site.sh

##@ Maintain

.PHONY: fmt
fmt: ## Format the Go code
	@hack/lint.sh fmt

.PHONY: fix
fix: ## Format, and apply the fixes that the linters offer
	@hack/lint.sh fix

.PHONY: lint
lint: ## Run golangci-lint over every module
	@hack/lint.sh

.PHONY: update
update: ## Regenerate CRDs, deepcopy, generated docs; tidy every module; format
	@hack/update.sh

.PHONY: verify
verify: ## Check that generated code is current, modules are tidy, code is formatted and lint-free
	@hack/verify.sh

.PHONY: upgrade-k8s
upgrade-k8s: ## Move to another Kubernetes version (VERSION=v1.X.Y)
	@hack/upgrade-k8s.sh $(VERSION)

##@ Help

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## "; print "usage: make TARGET" } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: need-go
need-go:
	@. hack/lib.sh && need_go

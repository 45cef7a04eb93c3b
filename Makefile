# Everything that a developer or CI runs. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
export CGO_ENABLED ?= 0
GOFLAGS_BUILD := -trimpath -ldflags "-s -w -X github.com/muster-dev/muster/internal/cli/frame.version=$(VERSION)"
TOOL := go tool -modfile=tools/go.mod
SEEDS ?= 1000
SEED ?= $(shell date +%s)
DURATION ?= 5m
WITHOUT ?=

.PHONY: help demo dev build test test-ml race sim e2e chaos bench lint lint-py fmt gen verify clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: build ## train on real handwritten digits, end to end (KEEP=1 leaves the server running)
	@scripts/demo

dev: build ## a server and a worker on this machine, with data in ./.muster
	bin/muster up --data .muster

build: ## bin/muster, a static binary
	go build $(GOFLAGS_BUILD) -o bin/muster ./cmd/muster

test: ## all tests, with the race detector and shuffled, and the end-to-end faults
	@scripts/need modules cc python3 pip dockerd podman busybox torch
	CGO_ENABLED=1 scripts/engine go test -race -shuffle=on -timeout 10m $$(go list ./... | grep -vE '/test/(attack|chaos|e2e|load)$$')
	$(MAKE) e2e

test-ml: build ## the AI kinds with the runtimes as their locks say (some 15 GiB in ./.ml, kept for the next run)
	@scripts/need cc python3 pip
	scripts/test-ml

race: ## only the fast tests, with the race detector
	@scripts/need cc python3 pip dockerd busybox
	CGO_ENABLED=1 scripts/engine go test -race -short -shuffle=on ./...

sim: ## the seeded simulation of the scheduler, SEEDS=1000
	go test ./internal/sched/simtest -run TestWorld -seeds $(SEEDS) -timeout 20m

e2e: build ## real processes: kill -9, frozen workers, full disks, engines that go away
	@scripts/need dockerd podman busybox
	scripts/engine go test -count=1 -parallel 4 -timeout 30m ./test/attack ./test/e2e ./test/chaos

chaos: build ## random faults under a random workload, SEED=17 DURATION=5m WITHOUT=server_disk,upgrade
	go test -count=1 -v -timeout 4h ./test/chaos -run '^TestChaos$$' -seed $(SEED) -duration $(DURATION) -without '$(WITHOUT)'

bench: build ## the figures of docs/performance.md, beside the bare limits of this machine
	@scripts/need dockerd docker busybox
	scripts/engine go test -run '^$$' -bench . -benchtime 1x -timeout 30m ./test/load

lint: ## golangci-lint
	$(TOOL) golangci-lint run ./...

lint-py: ## ruff and mypy for what is written in Python
	@scripts/need python3 pip
	scripts/lint-py

fmt: ## format
	gofmt -w $$(git ls-files '*.go')

gen: ## generated files
	go generate ./...

verify: ## exactly what CI runs
	@scripts/need modules
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not formatted: run make fmt"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(MAKE) gen && git diff --exit-code
	$(MAKE) build
	$(MAKE) lint
	$(MAKE) lint-py
	@dead=$$($(TOOL) deadcode -test ./... ); test -z "$$dead" || { echo "$$dead"; exit 1; }
	$(MAKE) test

clean: ## remove what was built
	rm -rf bin

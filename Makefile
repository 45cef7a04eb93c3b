# Everything that a developer or CI runs. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
export CGO_ENABLED ?= 0
# Also for tests, so that what was compiled in one clone is not compiled again in another.
export GOFLAGS := $(filter-out -trimpath,$(shell go env GOFLAGS)) -trimpath
GOFLAGS_BUILD := -ldflags "-s -w -X github.com/muster-dev/muster/internal/cli/app.version=$(VERSION)"
TOOL := go tool -modfile=tools/go.mod
# What runs go test -json, or reads its output, and with CI=true refuses skipped tests that test/skips.txt does not allow.
REPORT := go run ./internal/testreport -run
# SQLite is a WebAssembly module that was translated to Go: a single-threaded machine, which would take most of the time of
# the tests. What calls it is watched for races.
RACE := -race -gcflags=github.com/ncruces/go-sqlite3-wasm/...=-race=false
# Each process with the race detector sleeps a second before it exits unless it is told otherwise.
test race: export GORACE ?= atexit_sleep_ms=20
# Packages whose tests take real processes, engines or machines; they have targets of their own.
SLOW := /test/(attack|chaos|e2e|load|packages|vm)$$
SEEDS ?= 1000
SEED ?= $(shell date +%s)
DURATION ?= 5m
FUZZTIME ?= 1m
WITHOUT ?=
PREFIX ?= /usr/local
DESTDIR ?=
# The program under test is built once, not by each package that runs it.
test e2e chaos bench: export MUSTER_TEST_PROGRAM = $(CURDIR)/bin/muster

.PHONY: help demo dev build share install uninstall package sign vuln check test test-fast test-api test-ml test-vm test-packages test-release race sim e2e mutants fuzz chaos bench lint lint-py fmt fmt-check gen verify web site clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: build ## train on real handwritten digits, end to end (KEEP=1 leaves the server running)
	@scripts/demo

dev: build ## a server and a worker on this machine, with data in ./.muster
	bin/muster up --data .muster

build: ## bin/muster, a static binary, with the dashboard if Node.js is there
	@scripts/web build
	go build $(GOFLAGS_BUILD) -o bin/muster ./cmd/muster
	@cp bin/muster bin/muster.new && mv bin/muster.new bin/muster # it starts faster than what the linker has written: docs/performance.md

share: ## manual pages of all commands and completion scripts in bin/share
	rm -rf bin/share bin/share.new
	go run ./internal/gen share bin/share.new
	mv bin/share.new bin/share

bin/muster:
	$(MAKE) build
bin/share:
	$(MAKE) share

install: | bin/muster bin/share ## the program, manual pages, completions and service files: PREFIX=/usr/local DESTDIR=
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' scripts/install

uninstall: ## remove what make install put there; data and settings stay
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' scripts/install --uninstall

package: ## packages, archives, container images, SBOMs and their checksums in dist: ARCHS="amd64 arm64" DARWIN=arm64
	@scripts/need packages
	@scripts/web build
	VERSION='$(VERSION)' BUILD='$(GOFLAGS_BUILD)' scripts/package

sign: ## sign the checksums in dist with an SSH key: KEY=~/.ssh/id_ed25519
	@[ -n '$(KEY)' ] || { echo 'set KEY to the file of an SSH key: make sign KEY=~/.ssh/id_ed25519' >&2; exit 2; }
	ssh-keygen -Y sign -n muster-release -f '$(KEY)' dist/SHA256SUMS

vuln: ## known vulnerabilities in what the program calls, by govulncheck; says so where its database cannot be reached
	@scripts/vuln

check: fmt-check ## format, lint and the fast tests: no root, engine or network, under 90 s
	go vet ./...
	$(MAKE) lint
	$(MAKE) test-fast

test-fast: ## only the fast tests
	$(REPORT) user go test -json -short -vet=off -p 6 -- $$(go list ./... | grep -vE '$(SLOW)|/test/ml$$')

# internal/arch reads the source of all packages in one goroutine: nothing for the race detector, under which it takes two minutes.
test: web build ## all tests, with the race detector and shuffled, and the end-to-end faults
	@scripts/need modules cc python3 pip dockerd podman busybox redis-server torch promtool groff zsh fish
	go test -vet=off ./internal/arch
	$(REPORT) root env CGO_ENABLED=1 scripts/engine go test -json $(RACE) -shuffle=on -vet=off -p 4 -timeout 15m -- $$(go list ./... | grep -vE '$(SLOW)|/internal/arch$$')
	$(MAKE) e2e
	$(MAKE) e2e-web

test-vm: ## limits and shims on a real kernel with control groups of version 2 only, in a small virtual machine
	@scripts/need modules vm
	scripts/vm | $(REPORT) vm

test-packages: ## packages are installed, started, upgraded and removed on a Debian with systemd, in a small virtual machine (7 minutes; not in CI)
	@scripts/need modules vm packages
	for v in 0.0.1 0.0.2; do $(MAKE) package VERSION=$$v ARCHS=amd64 DARWIN= FORMATS="deb rpm" OUT=bin/packages/$$v; done
	MUSTER_VM_FILES=bin/packages scripts/vm --systemd test/packages | $(REPORT) packages

test-release: ## a release is built twice in different folders and compared, its SBOM, checksums and signature are checked (10 minutes; not in CI)
	@scripts/need modules node
	scripts/test-release

test-api: build ## schemathesis over all operations of the API of a real server, in 150 s
	@scripts/need schemathesis
	scripts/test-api

test-ml: build ## the AI kinds with the runtimes as their locks say (some 15 GiB in ./.ml, kept for the next run)
	@scripts/need cc python3 pip
	scripts/test-ml

race: ## only the fast tests, with the race detector
	@scripts/need cc python3 pip dockerd busybox redis-server
	CGO_ENABLED=1 scripts/engine go test $(RACE) -short -shuffle=on ./...

sim: ## the seeded simulations of the scheduler, SEEDS=1000, and of retention, with its mutants
	go test ./internal/sched/simtest -run TestWorld -seeds $(SEEDS) -timeout 20m
	go test ./internal/sweeper -run 'TestWorld|TestMutants' -seeds 40 -timeout 40m

e2e: build ## real processes: kill -9, frozen workers, full disks, engines that go away
	@scripts/need dockerd podman busybox redis-server
	$(REPORT) root scripts/engine go test -json -count=1 -vet=off -parallel 6 -timeout 30m -- ./test/attack ./test/e2e ./test/chaos

e2e-web: build ## the dashboard in Chromium against a real server; screenshots of all pages are left in web/e2e/screenshots
	@scripts/need node chromium
	cd web && node --test --test-concurrency=1 --test-timeout=600000 e2e/*.test.mjs

mutants: ## each attack test must fail without the guard that it is about: RUN=TestGet (30 minutes for all; not in CI)
	scripts/engine go test ./test/mutants -run TestMutants -v -timeout 5h -args -mutants '$(or $(RUN),.)'

fuzz: ## the fuzz tests, one after the other: RUN='FuzzToken|cli/term' FUZZTIME=1m (not in CI, where go test runs their seeds)
	@scripts/fuzz '$(or $(RUN),.)' $(FUZZTIME)

chaos: build ## random faults under a random workload, SEED=17 DURATION=5m WITHOUT=server_disk,upgrade
	go test -count=1 -v -timeout 4h ./test/chaos -run '^TestChaos$$' -seed $(SEED) -duration $(DURATION) -without '$(WITHOUT)'

bench: build ## the figures of docs/performance.md, beside the bare limits of this machine
	@scripts/need dockerd docker busybox
	scripts/engine go test -run '^$$' -bench . -benchtime 1x -timeout 60m ./test/load

web: ## the dashboard: types, lint, tests, build and the size of its first load
	@scripts/need node
	scripts/web check

lint: ## golangci-lint
	$(TOOL) golangci-lint run ./...

site: ## the documentation as a static site in bin/site, with links checked
	@scripts/need python3 pip
	scripts/site

lint-py: ## ruff and mypy for what is written in Python
	@scripts/need python3 pip
	scripts/lint-py

fmt-check:
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not formatted: run make fmt"; gofmt -l $$(git ls-files '*.go'); exit 1; }

fmt: ## format
	gofmt -w $$(git ls-files '*.go')

gen: ## generated files
	go generate ./...
	@scripts/web gen

verify: ## exactly what CI runs
	@scripts/need modules cc python3 pip node busybox redis-server torch
	$(MAKE) fmt-check
	$(MAKE) gen && git diff --exit-code
	$(MAKE) build
	$(MAKE) lint
	$(MAKE) lint-py
	$(MAKE) site
	@dead=$$($(TOOL) deadcode -test ./... ); test -z "$$dead" || { echo "$$dead"; exit 1; }
	scripts/unprivileged $(MAKE) test-fast
	$(MAKE) test
	$(MAKE) test-api
	$(MAKE) test-vm

clean: ## remove what was built
	rm -rf bin dist

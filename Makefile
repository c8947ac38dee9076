.DEFAULT_GOAL := help
# Go 1.26 has known holes in its HTTP/2 server; it still builds, this one is used.
export GOTOOLCHAIN ?= go1.27.3

LINT     = go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
DEADCODE = go run golang.org/x/tools/cmd/deadcode@v0.52.0
# The race detector needs a C compiler; make check insists on it.
RACE    ?= $(shell command -v cc >/dev/null 2>&1 && echo -race)
CONFIG  ?= config.yaml
FUZZTIME ?= 10s

.PHONY: help build run demo test check lint tidy dead bench fuzz mutants soak conformance golden fmt

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  %-11s %s\n", $$1, $$2}' Makefile

build: ## The static binary, bin/moothall
	CGO_ENABLED=0 go build -trimpath -tags goolm -o bin/moothall ./cmd/moothall

run: build ## Run the bot with CONFIG=config.yaml
	bin/moothall serve --config $(CONFIG)

demo: ## A real homeserver, a real bot, a short conversation; KEEP=1 leaves all up
	go run ./internal/demo/cmd/demo

test: ## All tests, shuffled; ends with a line for each engine
	go run ./internal/tally $(RACE) -shuffle=on -tags goolm ./...

check: tidy lint dead ## All that CI runs on a change; run it before you push
	go build ./...
	go vet ./...
	CGO_ENABLED=0 go build -tags goolm ./...
	go vet -tags goolm ./...
	$(MAKE) test RACE=-race

tidy: ## Prove that go.mod and go.sum say what is used
	go mod tidy -diff
	go mod verify

lint: ## Format, linters, banned imports
	$(LINT) run ./...

dead: ## Functions that nothing reaches, tests included
	@out=$$($(DEADCODE) -test -tags goolm ./...) || exit 1; test -z "$$out" || { echo "$$out"; exit 1; }

bench: ## Benchmarks beside their baselines, as ratios
	go run ./bench

fuzz: ## FUZZTIME=10s of each fuzz target
	@for p in $$(grep -rl '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u); do \
	  for f in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$p/*_test.go | cut -d' ' -f2); do \
	    go test -tags goolm -run='^$$' -fuzz="^$$f$$" -fuzztime=$(FUZZTIME) -fuzzminimizetime=1x $$p || exit 1; done; done

mutants: ## Take guards away one by one: the test that claims each must turn red
	go run ./internal/mutants $(GUARDS)

conformance: ## Which test holds which promise; writes docs/conformance.md
	go run ./internal/conformance $(if $(FROM),-from $(FROM))

soak: ## What needs patience: the homeserver killed again and again
	MOOTHALL_TEST_SOAK=1 go test ./cmd/moothall -run HomeserverCrash -count=3 -v | grep -v '"level"'

golden: ## Rewrite expected output; read the diff before you commit it
	go test ./bridge ./cmd/moothall -update

fmt: ## Format
	$(LINT) fmt

# Two commands for a newcomer: `make run` builds and serves on 127.0.0.1:9092, `make test` runs all ordinary tests.
GO        ?= go
DATA      ?= ./data
LISTEN    ?= 127.0.0.1:9092
SEEDS     ?= 20000
SEED      ?=
FUZZTIME  ?= 10s
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null)
LDFLAGS   := -X main.version=$(VERSION)

.PHONY: build run test race check lint fuzz-smoke fuzz sim cases soak compat compat-kafka bench bench-kafka cover clean

build: ## the one binary, ./sekali
	$(GO) build -ldflags '$(LDFLAGS)' -o sekali ./cmd/sekali

run: build ## build and serve on $(LISTEN), data in $(DATA)
	./sekali serve --listen $(LISTEN) --data $(DATA)

test: ## all ordinary tests
	$(GO) vet ./...
	$(GO) test ./...

race: ## the same under the race detector, costly invariant checks on
	$(GO) test -race -tags sekali_check -timeout 25m ./...

check: ## the rules of the house and the module file
	$(GO) test ./internal/tidy
	$(GO) mod tidy -diff

lint: check
	$(GO) vet ./...

fuzz-smoke: ## every fuzz target for FUZZTIME, one after the other
	./fuzz/smoke.sh $(FUZZTIME)

fuzz: ## every fuzz target for ten minutes
	./fuzz/smoke.sh 10m

sim: ## SEEDS seeds of the simulator, a tenth with small sequence numbers, all planted faults; or make sim SEED=4711
ifeq ($(SEED),)
	$(GO) test -v ./fuzz/sim -count=1 -timeout 120m -run '^(TestSimulation|TestTransactions|TestEveryCrash|TestCanary)$$' \
		-args -seeds=$(SEEDS) -txnseeds=$(SEEDS) -ways=5 -plants=99
	$(GO) test -v -tags sekali_smallseq ./fuzz/sim -count=1 -timeout 120m -run '^TestSimulation$$' \
		-args -seeds=$$(( ($(SEEDS) + 9) / 10 ))
else
	$(GO) test -v ./fuzz/sim -count=1 -run '^TestSimulation$$' -args -seed=$(SEED)
endif

cases: build ## the cases of docs/cases.md at full size on a real disk (as root)
	SEKALI_SIZE=full $(GO) test -count=1 -timeout 40m -v ./fuzz/cases

soak: build ## what takes longer than the cases may: case H2 with 100,000 transactional ids, what it costs asserted
	SEKALI_SIZE=soak $(GO) test -count=1 -timeout 60m -v -run '^TestH2' ./fuzz/cases

compat: build ## seven clients against the daemon
	./compat/run.sh

compat-kafka: build ## the same and a raw differential against Apache Kafka 4.4.0; Kafka's own tools against the daemon
	./compat/run-kafka.sh

bench: ## paired benchmarks, medians and ratios
	$(GO) test ./bench -run '^$$' -bench . -benchtime 1s -count 5

bench-kafka: build ## commits per second beside Apache Kafka 4.4.0 with one Java client, in turn
	./compat/bench/run.sh

cover:
	$(GO) test -coverprofile=cover.out ./... && $(GO) tool cover -func=cover.out | tail -1

clean:
	rm -f sekali cover.out

# Every target first installs what it needs (see scripts/setup), so that any of them can be the first on a new machine.

FATHOM := target/release/fathom

# What cargo, npm and Java keep goes below target where the user has no home of their own: a service's account, a container.
ifneq ($(shell test -w "$$HOME" && echo yes),yes)
export HOME := $(CURDIR)/target/home
$(shell mkdir -p $(HOME))
endif

.PHONY: help
help:
	@echo "make demo              record 1,000 INSERTs and full scans on this disk, and show where their time went"
	@echo "make build             the static binary, $(FATHOM)"
	@echo "make build-sql         the program of \`fathom sql\` and \`fathom fleet\`, $(FATHOM)-sql (some minutes the first time)"
	@echo "make test              lint and every test suite; what was skipped is listed with its reason"
	@echo "make test-all          make test, then what is long by nature: simulations with many seeds, soaks, other engines"
	@echo "make test-sql          the tests of \`fathom sql\` and \`fathom fleet\` alone"
	@echo "make lint              formatting, clippy, the repository rules, generated files"
	@echo "make bench             what tracing costs, beside strace, perf and blktrace: writes docs/results/performance.md"
	@echo "make truth             injected causes beside what explain finds, changes beside what whatif predicts: docs/results/truth.md"
	@echo "make papers-lab        paper 004's three systems in virtual machines: docs/results/paper-004.md"
	@echo "make papers-native     paper 004's figures timed on this disk in its three settings: docs/results/paper-004-native.md"
	@echo "make papers-versions   paper 004's counts by SQLite's version, settings and table: docs/results/paper-004-versions.md"
	@echo "make lab               every scenario of the lab in its virtual machine: recordings in target/lab-runs/"
	@echo "make papers [FIG=…]    the figures of the papers on this machine, beside the papers' values: docs/results/papers.md"
	@echo "make papers DEVICE=adb:X  the same on this machine and on a device, and which of the papers' claims hold: target/papers-device"
	@echo "make book              the manual as a site with search: target/book/index.html"
	@echo "make aarch64           the program for aarch64, which arm64 guests of the lab record with (some minutes the first time)"
	@echo "make dist              a .tar.gz and a .deb for x86_64 and for aarch64 under target/dist"
	@echo "make packages          make dist, and of it: install.sh, a Python wheel, an RPM package, an OCI image, recipes (target/packages)"
	@echo "make install           the program, its manual pages and completions below PREFIX (/usr/local)"
	@echo "make clean             removes what was built and what the demo left"

.PHONY: setup
setup:
	@scripts/setup build

.PHONY: setup-test
setup-test:
	@scripts/setup test

.PHONY: build
build: setup
	@scripts/build

# A separate program, so that recording and measuring do not require compiling an SQL engine.
.PHONY: build-sql
build-sql: setup
	@scripts/build-sql

# Recording needs root, building does not: the demo prints this, and how to continue.
.PHONY: demo
demo: build
	@$(FATHOM) demo

# Clippy compiles the tests, so that one build both lints and compiles them.
.PHONY: test
test:
	@scripts/setup-and-build
	@cargo xtask lint --no-clippy
	@cargo xtask test --linted

.PHONY: test-all
test-all: test
	@scripts/setup sql
	@scripts/build-sql
	@scripts/test-sql
	@cargo xtask long --linted
	@cargo xtask mutants

# Only the tests of `fathom sql` and `fathom fleet`.
.PHONY: test-sql
test-sql: setup-test
	@scripts/setup sql
	@scripts/build
	@scripts/build-sql
	@scripts/test-sql
	@cargo xtask long sql fleet engines

.PHONY: lint
lint: setup-test
	@scripts/build
	@cargo xtask lint

.PHONY: bench
bench:
	@scripts/setup bench
	@scripts/build
	@$(FATHOM) bench run experiments/peers/*.toml --output target/bench.fathom --markdown docs/results/performance.md

# SEED seeds the choice of workloads and devices; TRIALS is the number of trials per cause (a quarter of it per healthy workload and per
# change). The default is over 200 trials of causes, about an hour on a quiet machine. With MINUTES the run ends after that time, a third
# of which is for changes; Ctrl-C ends it, too. The page then covers the trials done so far, and states that.
SEED ?= $(shell date +%s)
TRIALS ?= $(if $(MINUTES),40,16)
.PHONY: truth
truth: setup-test
	@scripts/build
	@cargo build --release --package fathom-tests --bin truth
	@target/release/truth causes --trials $(TRIALS) --seed $(SEED) $(if $(MINUTES),--minutes $$(( $(MINUTES) * 2 / 3 ))) \
		--output docs/results/truth.md
	@target/release/truth whatif --trials $$(( ($(TRIALS) + 3) / 4 )) --seed $(SEED) $(if $(MINUTES),--minutes $$(( $(MINUTES) / 3 ))) \
		--output docs/results/whatif.md

# A single figure is printed; all figures make the manual's page. DEVICE=adb:SERIAL makes them on this machine and on the device, and
# judges the papers' claims: archives and page are in target/papers-device. PAPERS holds further options, such as --quick.
.PHONY: papers
papers: build
ifdef DEVICE
	@mkdir -p target/papers-device && cd target/papers-device && \
	../../$(FATHOM) papers $(FIG) --device $(DEVICE) --archives . --output papers.md $(PAPERS)
	@echo "target/papers-device/papers.md"
else
	@$(FATHOM) papers $(or $(FIG),--output docs/results/papers.md)
endif

# Paper 004's three systems in guests, and which of their settings make the difference: counts only, since times on an emulated processor
# are meaningless. ROWS changes the number of INSERTs. The recordings stay in target/paper-004-lab/.
.PHONY: papers-lab
papers-lab: build
	@mkdir -p target && cd target && ../$(FATHOM) lab run paper-004 $(if $(ROWS),--set rows=$(ROWS)) -o paper-004-lab
	@cp target/paper-004-lab/papers.md docs/results/paper-004.md

# Paper 004's figures 1 to 5 on this machine's disk, with the paper's 10,000 INSERTs: timed, unlike the lab's. ROWS changes their number.
.PHONY: papers-native
papers-native: build
	@mkdir -p target/paper-004/native
	@experiments/papers/native $(FATHOM) docs/results/paper-004-native.md $(or $(ROWS),10000) target/paper-004/native

# How SQLite's version, its settings and the table affect paper 004's counts, natively: counts only.
.PHONY: papers-versions
papers-versions: build
	@experiments/papers/versions/run $(FATHOM) docs/results/paper-004-versions.md

# The program cross-compiled for aarch64: the lab's arm64 guests record with it.
.PHONY: aarch64
aarch64: setup
	@cargo xtask aarch64

# Every scenario, one after the other, those of paper 004 as a series; those that do not end as expected are listed at the end.
# Without a program for aarch64 (Rust target not available) the arm64 scenarios report that.
.PHONY: lab
lab: build
	-@cargo xtask aarch64
	@mkdir -p target/lab-runs && cd target/lab-runs && failed=; \
	for scenario in $$(../../$(FATHOM) lab list | cut -d ' ' -f 1 | grep -v '^paper-004-'); do \
	    ../../$(FATHOM) lab run $$scenario || failed="$$failed $$scenario"; \
	done; \
	[ -z "$$failed" ] || { echo "not as expected:$$failed" >&2; exit 1; }

# README's pictures, of the recording that `fathom demo` includes.
PICTURE = scripts/picture target/picture/sample.html docs/images
.PHONY: picture
picture: setup-test
	@scripts/build
	@rm -rf target/picture && mkdir -p target/picture && cp -r crates/recorder/sample target/picture/sample.fathom
	@$(FATHOM) report target/picture/sample.fathom -o target/picture/sample.html
	@$(PICTURE)/report.png timeline 710 '#timeline-canvas@0.36,0.174' '#timeline-canvas@0.36,0.26' \
		'#timeline-canvas@0.36,0.846' '#panel .bar@0.94,0.5'
	@$(PICTURE)/statement.png statements 790 '#statements details@0.51,0.37' '#statements details@0.84,0.18' \
		'#statements details@0.84,0.4715' '#statements details@0.54,0.896'
	@$(PICTURE)/addresses.png scatter 440 '#scatter canvas@0.99,0.045' '#scatter canvas@0.99,0.80' '#scatter canvas@0.99,0.90' \
		'#scatter-body > :last-child@0.5,0.35'

# The recording that `make demo` shows where nothing can be traced.
.PHONY: sample
sample: build
	@scripts/sample $(FATHOM)

# No build of Fathom needs mdBook, so it is only installed on request.
.PHONY: book
book:
	@command -v mdbook >/dev/null || { echo "make book needs mdbook: cargo install mdbook --version 0.4.52 --locked" >&2; exit 1; }
	@mdbook build
	@echo "target/book/index.html"

.PHONY: dist
dist: build
	@cargo xtask dist

# The same files that a release has, and the recipes for other package managers.
.PHONY: packages
packages: dist
	@packaging/make

.PHONY: install
install: setup
	@scripts/build --dist
	@SQL=target/release/fathom-sql scripts/install target/$$(scripts/toolchain target)/dist/fathom

.PHONY: clean
clean:
	rm -rf target demo.fathom demo.html demo.pftrace sample.fathom sample.html sample.pftrace

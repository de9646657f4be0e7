# Every way to work on this project. Needs only make and Python 3.11 or newer; `make` alone lists the targets.

PYTHON ?= python3
VENV ?= .venv
REQUIREMENTS ?= requirements/dev.txt
# Directories below tests/. tests/chaos takes half an hour, and has a target of its own: chaos-tests.
LEVELS ?= unit model contract integration system browser migrations
PYTEST_ARGS ?=
# Sections and options of `python -m bench`, e.g. "recovery --kills 50"; see `python -m bench --help`.
BENCH_ARGS ?= --pairs 3
# Of `make chaos`. Without SEED it runs the known seeds of tests/chaos/seeds.txt, then one that is new each time.
SEED ?=
BROKER ?= redis
POOL ?= prefork
TASKS ?= 1000
PLAIN ?=
# Of `make chaos-replay`, beside SEED.
KILLS ?= 500
# Of `make chaos-beat`, beside SEED.
FAILOVERS ?= 300
# More options of `python -m hardening.chaos`, e.g. "--workers 2 --keep build/chaos"; see its `--help`.
CHAOS_ARGS ?=
# How many tests at a time. Most of them wait for workers, each in a place of its own: more than there are cores.
PARALLEL ?= 5

DEMO_VENV := .venv-demo
BIN := $(VENV)/bin
SOURCES := hardening dlq beat_leader tests sample_project bench docs
STAMP := $(VENV)/.installed-$(shell cat $(REQUIREMENTS) pyproject.toml 2>/dev/null | cksum | cut -d' ' -f1)
DEMO_STAMP := $(DEMO_VENV)/.installed-$(shell cat requirements/demo.txt pyproject.toml 2>/dev/null | cksum | cut -d' ' -f1)

.DEFAULT_GOAL := help
.PHONY: help setup demo up test chaos chaos-beat chaos-replay chaos-tests check format bench reference requirements clean python-new-enough

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make the virtual environment VENV with the set REQUIREMENTS

demo: $(DEMO_STAMP) ## Run the sample shop, let it fail, replay, and count what became of every job
	$(DEMO_VENV)/bin/python -m sample_project.demo

up: $(DEMO_STAMP) ## The same shop, with its admin and Flower, until Ctrl-C
	$(DEMO_VENV)/bin/python -m sample_project.demo --stay

# Where the variable is set, each of the hundreds of processes that tests start would compile every module again.
test: export PYTHONDONTWRITEBYTECODE =
test: $(STAMP) ## Run the tests of LEVELS against real servers
	$(BIN)/python -m tests.install_servers
	$(BIN)/python -m pytest -n $(PARALLEL) --dist worksteal $(PYTEST_ARGS) $(wildcard $(addprefix tests/,$(LEVELS)))

chaos: $(STAMP) ## TASKS under kills, cuts and restarts by SEED, on BROKER and POOL; PLAIN=1: beside plain Celery
	$(BIN)/python -m tests.install_servers
	$(BIN)/python -m $(if $(SEED),hardening.chaos --seed $(SEED),tests.chaos.seeds) --broker $(BROKER) --pool $(POOL) \
		--tasks $(TASKS) $(if $(PLAIN),--plain) $(CHAOS_ARGS)

chaos-replay: $(STAMP) ## KILLS of replayers by SEED, on real Redis and PostgreSQL; the last line is the ledger
	$(BIN)/python -m tests.install_servers
	$(BIN)/python -m tests.chaos.replays --kills $(KILLS) $(if $(SEED),--seed $(SEED))

chaos-beat: $(STAMP) ## FAILOVERS of Beats by SEED, locks in Redis and PostgreSQL; the last line is the account
	$(BIN)/python -m tests.install_servers
	$(BIN)/python -m tests.chaos.beats --failovers $(FAILOVERS) $(if $(SEED),--seed $(SEED))

chaos-tests: $(STAMP) ## A retry storm, fifty rolling restarts, a minute without Redis: half an hour, with tables
	$(BIN)/python -m tests.install_servers
	$(BIN)/python -m pytest $(PYTEST_ARGS) -s tests/chaos

check: $(STAMP) ## Format, lint, types, direction of imports
	@failed=; for tool in "ruff format --check $(SOURCES)" "ruff check $(SOURCES)" mypy lint-imports; do \
		echo "$$tool"; $(BIN)/$$tool || failed="$$failed, $${tool%%$(SOURCES)}"; \
	done; test -z "$$failed" || { echo "failed: $${failed#, }"; exit 1; }

format: $(STAMP) ## Format, and mend what the linter can mend
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

bench: $(STAMP) ## Measure throughput, recovery, Redis commands and delayed tasks beside plain Celery: half an hour
	$(BIN)/python -m bench $(BENCH_ARGS)

reference: $(STAMP) ## Write docs/reference from the code
	$(BIN)/python -m docs.generate

requirements: $(STAMP) ## Compile requirements/*.in to exact versions with hashes
	set -e; for set in demo dev oldest; do \
		$(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
			--no-emit-index-url --no-emit-find-links --upgrade \
			--custom-compile-command "make requirements" \
			requirements/$$set.in --output-file requirements/$$set.txt; \
	done

clean: ## Remove environments and caches
	rm -rf .venv .venv-* .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

python-new-enough:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "celery-hardening needs Python 3.11 or newer, but '$(PYTHON)' is $$($(PYTHON) --version 2>/dev/null | head -n 1 | grep . || echo absent)."; \
		echo "Install it, or name another one: make PYTHON=python3.13 $(MAKECMDGOALS)"; exit 1; }

# The stamp's name holds a checksum of what was installed: a changed set is installed anew, an unchanged one at no cost.
$(STAMP): | python-new-enough
	$(PYTHON) -m venv $(if $(wildcard $(VENV)/bin/python),,--clear) $(VENV)
	$(BIN)/python -m pip install -qq --require-hashes --requirement $(REQUIREMENTS)
	$(BIN)/python -m pip install -qq --no-deps --no-build-isolation --editable .
	rm -f $(VENV)/.installed-*
	touch $@

$(DEMO_STAMP): | python-new-enough
	$(PYTHON) -m venv $(if $(wildcard $(DEMO_VENV)/bin/python),,--clear) $(DEMO_VENV)
	$(DEMO_VENV)/bin/python -m pip install -qq --require-hashes --requirement requirements/demo.txt
	rm -f $(DEMO_VENV)/.installed-*
	touch $@

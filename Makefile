# Toolgate: `make run` and `make test` need Python 3.11+ and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp

.PHONY: help run test fuzz mutants conformance check audit format schemas bench bench-large clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("Toolgate needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'

$(STAMP)-run: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(STAMP)-test: $(STAMP)-run
	$(BIN)/python -m pip install --quiet --group test
	@touch $@

$(STAMP)-check: $(STAMP)-test
	$(BIN)/python -m pip install --quiet --group check
	@touch $@

run: $(STAMP)-run ## the gateway with its example services, in the foreground
	@$(BIN)/python examples/run.py

test: $(STAMP)-test ## the whole suite
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal $(ARGS)

fuzz: $(STAMP)-test ## random requests and callers at every front and the admin API, damaged descriptions
	$(BIN)/python -m tests.fuzz $(if $(SEED),--seed $(SEED)) $(ARGS)
	$(if $(ARGS),,$(BIN)/python -m tests.fuzz.access $(if $(SEED),--seed $(SEED)))
	$(if $(ARGS),,$(BIN)/python -m tests.fuzz.documents $(if $(SEED),--seed $(SEED)))
	$(if $(ARGS),,$(BIN)/python -m tests.fuzz.admin $(if $(SEED),--seed $(SEED)))

mutants: $(STAMP)-test ## the damaged descriptions alone
	$(BIN)/python -m tests.fuzz.documents $(ARGS)

conformance: $(STAMP)-test ## the official MCP suite, through the gateway and against its client
	$(BIN)/python -m tests.conformance $(ARGS)

check: $(STAMP)-check ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

audit: $(STAMP)-run ## known vulnerabilities of the packages; fails where one cannot be looked up
	$(BIN)/python -m pip install --quiet --group audit
	$(BIN)/pip-audit --local --skip-editable --strict --desc off $(ARGS)

format: $(STAMP)-check ## rewrite the code to the format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

schemas: $(STAMP)-run ## write the published JSON Schemas anew
	$(BIN)/python -m config.schema

bench: $(STAMP)-test ## the numbers we promise, beside a floor and a peer
	$(BIN)/python -m benchmarks $(ARGS)

bench-large: $(STAMP)-test ## a million vectors of one tenant: building, memory, recall, latency
	$(BIN)/python -m benchmarks.large $(ARGS)

clean: ## remove what was built here
	rm -rf $(VENV) .conformance .pytest_cache .mypy_cache .ruff_cache build dist

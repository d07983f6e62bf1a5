# Two commands on a fresh machine: `make run` and `make test`. Each makes .venv if it is missing.
#
#   PYTHON=python3.12        which Python makes the environment (3.11 or newer)
#   DEVICE=gpu               install the CUDA build of fbgemm instead of the CPU one
#   TORCH_INDEX=URL_OF_TORCH_CPU_WHEELS   extra package index to take torch from
#   JOB=examples/retail.toml ARGS="--set train.epochs=2"   what `make run` runs

SHELL := /bin/bash
PYTHON ?= python3
DEVICE ?= cpu
JOB ?= examples/synthetic.toml
ARGS ?=
TESTS ?= tests
APART := tests/hosts tests/hostile
TORCH_INDEX ?=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready-$(DEVICE)
INDEX_OPTION := $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))

.PHONY: run test test-all mutations lint format bench docs clean help

help:
	@echo "make run    train $(JOB)          (JOB=..., ARGS=...)"
	@echo "make test   the tests: units, and one whole run for each promise; 6 minutes   (TESTS=tests/supervisor)"
	@echo "make test-all   all tests: every kind of fault, several machines, hostile peers, every page, mutations"
	@echo "make mutations   takes safeguards out one by one: the tests must fail each time"
	@echo "make lint   ruff, mypy, import-linter"
	@echo "make bench  the benchmarks"
	@echo "make docs   the site, in build/site"
	@echo "make clean  remove the environment and caches; runs/ stays"

run: $(READY)
	$(BIN)/python -m elastichost run $(JOB) $(ARGS)

test: $(READY)
	$(BIN)/python -m pytest -q -n 2 --dist worksteal $(TESTS)

# Tests of machines and hostile peers have the cores to themselves: beside other tests their answers come too late.
test-all: export ELASTICHOST_TESTS := thorough
test-all: $(READY)
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "" tests $(addprefix --ignore=,$(APART))
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "" $(APART)

mutations: export ELASTICHOST_TESTS := thorough
mutations: $(READY)
	$(BIN)/python -m tests.mutations

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict elastichost benchmarks
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/python -m benchmarks

# A wheel of nicegui carries the modules of mermaid, which draws diagrams; nothing else of it is used.
docs: $(READY)
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[$(DEVICE),test,docs]'
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps 'nicegui==3.18.0'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# A Python without ensurepip (Debian without python3-venv) makes an environment without pip; its own pip fills that.
$(READY): pyproject.toml packaging/fbgemm-gpu-shim/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "elastichost needs Python 3.11 or newer; name one: make PYTHON=python3.11" >&2; exit 3; }
	@if [ ! -x $(BIN)/python ]; then \
		if $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
			$(PYTHON) -m venv $(VENV); \
		else \
			$(PYTHON) -m venv --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install pip; \
		fi; \
	fi
	$(BIN)/python -m pip install --disable-pip-version-check $(INDEX_OPTION) -e '.[$(DEVICE),test]'
	@rm -f $(VENV)/.ready-*
	@touch $(READY)

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

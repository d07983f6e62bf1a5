# Two commands on a fresh machine: `make run` and `make test`. Each makes .venv if it is missing.
#
#   PYTHON=python3.12        which Python makes the environment (3.11 or newer)
#   DEVICE=gpu               install the CUDA build of fbgemm instead of the CPU one
#   TORCH_INDEX=URL_OF_TORCH_CPU_WHEELS   extra package index to take torch from
#   CONSTRAINTS=             take the newest packages instead of those of packaging/constraints.txt
#   JOB=examples/retail.toml ARGS="--set train.epochs=2"   what `make run` runs

SHELL := /bin/bash
PYTHON ?= python3
DEVICE ?= cpu
JOB ?= examples/synthetic.toml
ARGS ?=
TESTS ?= tests
APART := tests/hosts tests/hostile
ALONE := tests/benchmarks/memory_estimate/test_real_peaks.py
TORCH_INDEX ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
CONSTRAINTS ?= packaging/constraints.txt
# Without --no-compile, pip writes bytecode of every file, a seventh of the environment, and most of it is never read.
# `doctor` imports what a job does, which writes the bytecode that is.
INSTALL := $(PIP) install --no-compile $(if $(CONSTRAINTS),-c $(CONSTRAINTS))
# The environment in two steps: what runs a job, and on top of it what tests need.
RUNS := $(VENV)/.runs-$(DEVICE)
TESTS_READY := $(VENV)/.tests-$(DEVICE)
INDEX_OPTION := $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
# torchrec asks for fbgemm-gpu, the CUDA build. On a CPU machine a package without content stands for it.
FBGEMM := $(if $(filter gpu,$(DEVICE)),fbgemm-gpu==1.8.0,./packaging/fbgemm-gpu-shim)

.PHONY: run test test-all mutations lint format bench docs wheel clean help

help:
	@echo "make run    train $(JOB)          (JOB=..., ARGS=...)"
	@echo "make test   the tests: units, and one whole run for each promise; 6 minutes   (TESTS=tests/supervisor)"
	@echo "make test-all   all tests: every kind of fault, several machines, hostile peers, every page, mutations"
	@echo "make mutations   takes safeguards out one by one: the tests must fail each time"
	@echo "make lint   ruff, mypy, import-linter"
	@echo "make bench  the benchmarks"
	@echo "make docs   the site, in build/site"
	@echo "make wheel  dist/: wheel and sdist, and what stands for fbgemm-gpu on a machine without CUDA"
	@echo "make clean  remove the environment and caches; runs/ stays"

run: $(RUNS)
	$(BIN)/python -m elastichost run $(JOB) $(ARGS)

test: $(TESTS_READY)
	$(BIN)/python -m pytest -q -n 2 --dist worksteal $(TESTS)

# Tests of machines and hostile peers have the cores to themselves: beside other tests their answers come too late. So
# have the peaks of memory of real jobs: beside other tests one of them is 12 % higher in one run of three.
test-all: export ELASTICHOST_TESTS := thorough
test-all: $(TESTS_READY)
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "" tests $(addprefix --ignore=,$(APART) $(ALONE))
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "" $(APART)
	$(BIN)/python -m pytest -q -m "" $(ALONE)

mutations: export ELASTICHOST_TESTS := thorough
mutations: $(TESTS_READY)
	$(BIN)/python -m tests.mutations

lint: $(TESTS_READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict elastichost benchmarks
	$(BIN)/lint-imports

format: $(TESTS_READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(TESTS_READY)
	$(BIN)/python -m benchmarks

# A wheel of nicegui carries the modules of mermaid, which draws diagrams; nothing else of it is used.
docs: $(TESTS_READY)
	$(INSTALL) --group docs
	$(PIP) install --no-deps 'nicegui==3.18.0'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

wheel: $(RUNS)
	$(PIP) install build
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m build --wheel --outdir dist packaging/fbgemm-gpu-shim

# A Python without ensurepip (Debian without python3-venv) makes an environment without pip; its own pip fills that.
$(RUNS): pyproject.toml packaging/fbgemm-gpu-shim/pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "elastichost needs Python 3.11 or newer; name one: make PYTHON=python3.11" >&2; exit 3; }
	@for made in $(VENV)/.runs-*; do \
		if [ -e "$$made" ] && [ "$$made" != "$(RUNS)" ]; then \
			echo "$(VENV) was made for another DEVICE: it is made anew"; rm -rf $(VENV); break; \
		fi; \
	done
	@if [ ! -x $(BIN)/python ]; then \
		if $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
			$(PYTHON) -m venv $(VENV); \
		else \
			$(PYTHON) -m venv --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install pip; \
		fi; \
	fi
	$(PIP) install --upgrade 'pip>=25.1'
	$(INSTALL) $(INDEX_OPTION) $(FBGEMM) -e .
	@rm -f $(VENV)/.runs-* $(VENV)/.tests-*
	-@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m elastichost doctor
	@touch $(RUNS)

$(TESTS_READY): $(RUNS)
	$(INSTALL) $(INDEX_OPTION) --group test
	$(BIN)/python -m compileall -q -j 0 $(VENV)/lib >/dev/null || true
	@touch $(TESTS_READY)

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# Two commands to know: `make demo` and `make test`. Both need only Python 3.10 or newer, pip and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2

# Compiled kernels are kept in the clone, so that test workers and later runs share them.
export NUMBA_CACHE_DIR ?= $(CURDIR)/.cache/numba

.DEFAULT_GOAL := help
.PHONY: help setup demo study test oldest check docs format bench clean

help: ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(STAMP) ## make .venv and install labeldp with its tools (instant when nothing changed)

# The stamp is written last: an interrupted installation is taken up again by the next run.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: setup ## release labels, learn from them, and print what it cost and bought
	$(BIN)/labeldp demo

# Studies are not part of the installed package: they run from here. LABELDP_DATA names the folder of data sets.
study: setup ## repeat an experiment: NAME=prior-response [SEEDS=3] [QUICK=1]; without NAME a list
	$(BIN)/python -m studies $(or $(NAME),--list) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(QUICK),--quick)

# One thread of linear algebra in each test worker: two workers with two threads each fight for two cores.
test: export OMP_NUM_THREADS = 1
test: export OPENBLAS_NUM_THREADS = 1
test: setup ## all tests, and the examples of the sources and of README.md
	$(BIN)/python -m pytest -n $(WORKERS)

oldest: setup ## the core tests on the lowest declared versions, and on Python 3.10 and 3.13 where they are at hand
	WORKERS=$(WORKERS) $(BIN)/python scripts/oldest.py

check: setup ## lint, format, types, layers, spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

docs: setup ## build the documentation into .cache/site, warnings as errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: setup ## let ruff format and fix what it safely can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## measure speed as ratios, one script after the other, nothing else beside them
	for script in core clusters selection bench_softmax bench_table; do $(BIN)/python benchmarks/$$script.py || exit 1; done

clean: ## remove what these commands made
	rm -rf $(VENV) .venv-oldest .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .benchmarks build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

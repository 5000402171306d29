# Two commands to know: `make demo` and `make test`. Both need only Python 3.10 or newer, pip and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What is in .venv: the package alone, which the demo needs, or everything. A stamp is written last, so that an interrupted
# installation is taken up again by the next run.
CORE := $(VENV)/.core
STAMP := $(VENV)/.installed
MAKE_VENV := $(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
# Packages have many files that nothing here imports. What is imported is compiled then, and kept, whatever the shell says: pytest rewrites 240 files of
# tests, and the processes of tests load ours.
export PYTHONDONTWRITEBYTECODE =
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
WORKERS ?= 2

# Compiled kernels are kept in the clone, so that test workers and later runs share them.
export NUMBA_CACHE_DIR ?= $(CURDIR)/.cache/numba

.DEFAULT_GOAL := help
.PHONY: help setup demo study test oldest check lint types docs notebooks format bench dist sbom clean

help: ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(STAMP) ## make .venv and install labeldp with its tools (instant when nothing changed)

$(CORE): pyproject.toml constraints.txt
	@echo "installing labeldp and the libraries that it needs into $(VENV), once"
	$(MAKE_VENV)
	$(PIP) --editable .
	touch $@

$(STAMP): pyproject.toml constraints.txt
	$(MAKE_VENV)
	$(PIP) --editable '.[dev]'
	touch $(CORE) $@

demo: $(CORE) ## release labels, learn from them, and print what it cost and bought
	$(BIN)/labeldp demo

# Studies are not part of the installed package: they run from here. LABELDP_DATA names the folder of data sets.
study: setup ## repeat an experiment: NAME=prior-response [SEEDS=3] [QUICK=1]; without NAME a list
	$(BIN)/python -m studies $(or $(NAME),--list) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(QUICK),--quick)

# One thread of linear algebra in each test worker: two workers with two threads each fight for two cores.
test: export OMP_NUM_THREADS = 1
test: export OPENBLAS_NUM_THREADS = 1
# Tests of a file stay together, since some share what the file made once; a worker that has none left takes some of the other's.
test: setup ## all tests, and the examples of the sources and of README.md
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

oldest: setup ## the core tests on the lowest declared versions, and on Python 3.10 and 3.13 where they are at hand
	WORKERS=$(WORKERS) $(BIN)/python scripts/oldest.py

check: lint types docs ## lint, format, types, layers, spelling, workflow files, documentation

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/zizmor --offline --quiet --persona pedantic --config .github/zizmor.yml .github/workflows

types: setup
	$(BIN)/mypy

# Not --quiet: MkDocs then counts no warnings, and --strict lets all of them pass.
docs: setup ## build the documentation into .cache/site, warnings as errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

notebooks: setup ## make the notebooks of the tutorials anew, and execute them (minutes)
	$(BIN)/python scripts/notebooks.py

format: setup ## let ruff format and fix what it safely can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## measure speed as ratios, one script after the other, nothing else beside them
	for script in core clusters selection bench_softmax bench_table; do $(BIN)/python benchmarks/$$script.py || exit 1; done

# The scripts make environments of their own, in a temporary folder.
dist: ## build wheel and sdist, and try them in fresh environments: alone, and with each extra alone
	$(PYTHON) scripts/dist.py

sbom: ## list what a base install brings (CycloneDX), into build/
	$(PYTHON) scripts/dist.py --sbom

clean: ## remove what these commands made
	rm -rf $(VENV) .venv-oldest .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .benchmarks build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

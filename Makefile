# Two commands for users: make demo, make test. They do all the set-up there is.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Bytecode, also where PYTHONDONTWRITEBYTECODE is set: without it, every start compiles our modules.
COMPILE := @$(BIN)/python -m compileall -q src >/dev/null 2>&1 || true

# The paper's data sets, where they lie beside the repository; tests that need them skip otherwise.
ifneq ($(wildcard ../shared/datasets),)
export RECONFORM_DATA ?= $(abspath ../shared/datasets)
endif

.PHONY: demo test coverage test-all test-lowest test-slow dist check measure fuzz bench compare study-paper test-spark test-mlflow docs docs-serve format clean
.DEFAULT_GOAL := test

demo: $(VENV)/.demo-installed
	@echo "The first run compiles the detectors, which takes about a minute; later ones take seconds."
	$(BIN)/reconform demo

# Some of them: make test TESTS=tests/statistics/test_fdr.py (make test-all takes it as well).
TESTS ?=
test: $(VENV)/.test-installed
	$(BIN)/python -m pytest -n 2 $(TESTS)

# Which lines and branches the tests run: a table, and htmlcov/. Compiled kernels count as not run.
coverage: $(VENV)/.test-installed
	$(PIP) 'pytest-cov>=6'
	$(BIN)/python -m pytest -n 2 --cov=reconform --cov-branch --cov-report=term:skip-covered --cov-report=html $(TESTS)

# What needs thousands of data sets to be seen: a few minutes on two cores.
test-slow: $(VENV)/.test-installed
	$(BIN)/python -m pytest -n 2 -m slow tests

# Every Python that the package promises, and newer ones where they are installed, each in an
# environment of its own (.venv-3.12). It takes as long as that many times make test.
PROMISED := 3.11 3.12 3.13
WHERE_AVAILABLE := 3.14
test-all:
	@missing=""; tested=""; for version in $(PROMISED) $(WHERE_AVAILABLE); do \
	  found=""; for python in python$$version $(HOME)/.pyenv/versions/$$version.*/bin/python; do \
	    if $$python -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$$version')" >/dev/null 2>&1; then found=$$python; break; fi; done; \
	  if [ -z "$$found" ]; then \
	    case " $(PROMISED) " in *" $$version "*) missing="$$missing $$version";; *) echo "Python $$version is not installed here and is left out.";; esac; \
	    continue; fi; \
	  echo "Python $$version: $$found"; \
	  $(MAKE) --no-print-directory test VENV=.venv-$$version PYTHON=$$found || exit 1; tested="$$tested $$version"; done; \
	echo "Tested with Python:$${tested:- none}."; \
	if [ -n "$$missing" ]; then echo "Not tested, as it was not found (looked for python3.x and pyenv's):$$missing. Install it, for example: pyenv install$${missing}"; exit 1; fi

# The lowest versions that pyproject.toml promises, in an environment of their own.
test-lowest: .venv-lowest/.installed
	.venv-lowest/bin/python -m pytest -n 2 $(TESTS)

# A wheel and a source archive in dist/; see docs/releasing.md.
dist: $(VENV)/.test-installed
	rm -rf dist
	$(BIN)/python -m build

check: $(VENV)/.test-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Modules, lines of code, what the default runs, tests, documents: limits are in tests/measure.py.
measure: $(VENV)/.test-installed
	@$(BIN)/python tests/measure.py

# Damaged tables and model files, for so many seconds each. For a person: FUZZ_SECONDS=1800.
# FUZZ_COUNT says how many at most, so that a run is the same on every machine that is quick enough.
FUZZ_SECONDS ?= 60
FUZZ_SEED ?= 0
fuzz: $(VENV)/.test-installed
	@for script in $(wildcard tests/fuzz/tables.py tests/fuzz/model_files.py tests/fuzz/feedback.py); do \
	  $(BIN)/python $$script --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED) $(if $(FUZZ_COUNT),--count $(FUZZ_COUNT)) || exit 1; done

bench: .venv-bench/.installed
	cd benchmarks && ../.venv-bench/bin/python bench.py --json results.json
	.venv-bench/bin/python benchmarks/bench.py --page
	.venv-bench/bin/python benchmarks/compare.py --write

# Asks nonconform, PyOD and fcnd what they do, and writes the tables of docs/comparison.md.
compare: .venv-bench/.installed
	.venv-bench/bin/python benchmarks/compare.py --ask --write

# Redoes everything in results/ from nothing; resumable, see results/make.py.
study-paper: $(VENV)/.test-installed
	$(BIN)/python results/make.py --store .study --jobs 2

# Spark with two executors, one of which is killed, and MLflow, asked over HTTP: large downloads, so not in make test.
test-spark: .venv-spark/.installed
	.venv-spark/bin/python -m pytest -q -rs -o addopts="" tests_external/test_spark.py

test-mlflow: .venv-mlflow/.installed
	.venv-mlflow/bin/python -m pytest -q -rs -W default -o addopts="" tests_external/test_mlflow.py

# The documentation site, in site/: sources are read, not run. A warning, such as a dead link, is an error.
docs: .venv-docs/.installed
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict
	@echo "open site/index.html"

docs-serve: .venv-docs/.installed
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs serve

format: $(VENV)/.test-installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "reconform needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Say make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo-installed: pyproject.toml | $(BIN)/python
	$(PIP) --editable .
	$(COMPILE)
	@touch $@

$(VENV)/.test-installed: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[test,dev]'
	$(COMPILE)
	@touch $@ $(VENV)/.demo-installed

.venv-lowest/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check uv
	.venv-lowest/bin/uv pip install --quiet --python .venv-lowest/bin/python --resolution lowest-direct --editable '.[test]'
	@touch $@

# nonconform 2.0.0, the peer, needs Python 3.12 or newer: pyenv's if there is one.
.venv-bench/.installed: pyproject.toml
	@found=""; for python in python3.13 python3.12 $(HOME)/.pyenv/versions/3.1[2-9]*/bin/python $(PYTHON); do \
	  if $$python -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then found=$$python; break; fi; done; \
	  if [ -z "$$found" ]; then echo "make bench compares with nonconform 2.0.0, which needs Python 3.12 or newer; none found (looked for python3.13, python3.12, pyenv's). Say make bench PYTHON=/path/to/python3.12"; exit 1; fi; \
	  $$found -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --editable . nonconform==2.0.0 fcnd==0.1.2 'pyod>=3'
	@touch $@

.venv-spark/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-spark
	.venv-spark/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[spark]' 'pandas<3' pytest psutil
	@touch $@

.venv-mlflow/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-mlflow
	.venv-mlflow/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[mlflow]' pandas pytest
	@touch $@

# The site needs none of the packages that reconform runs on, so only those of the extra are installed.
.venv-docs/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-docs
	@.venv-docs/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")' >.venv-docs/docs.txt
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --requirement .venv-docs/docs.txt
	@touch $@

clean:
	rm -rf $(VENV) .venv-docs site .venv-3.* .venv-lowest dist .venv-bench .venv-spark .venv-mlflow .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage htmlcov

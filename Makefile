PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
QUIET := --quiet --disable-pip-version-check
PIP := $(BIN)/python -m pip install $(QUIET) --constraint constraints.txt
DEMO := $(VENV)/.ready-demo
DEV := $(VENV)/.ready-dev

# `make check` runs these: no training in them.
QUICK := tests/test_house.py tests/test_public.py tests/test_rng.py tests/test_config.py tests/test_journal.py \
	tests/policies tests/uncertainty
LOWEST_EXTRAS := minilm,tagging,report,improve
LOWEST_TESTS := tests/test_rng.py tests/test_config.py tests/test_journal.py tests/policies tests/tasks tests/models \
	tests/training tests/uncertainty tests/weighting tests/selection
OTHER_PYTHONS := 3.12 3.13

# Two workers with one thread each use two cores best, and make every test repeatable.
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: setup demo lint check test coverage lowest pythons docs bench clean

setup: $(DEV)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The demo draws figures; it needs none of the other extras.
$(DEMO): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable ".[report]"
	touch $(DEMO)

# Everything that the tests need has what the demo needs.
$(DEV): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable ".[dev]"
	touch $(DEMO) $(DEV)

demo: $(DEMO)
	$(BIN)/taskmix demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: setup
	$(BIN)/python -m sphinx -n -W -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Before every commit: style, types and the quick tests.
check: lint
	$(BIN)/pytest -q -n 2 $(QUICK)

test: lint
	$(BIN)/pytest -n 2

coverage: setup
	$(BIN)/pytest -n 2 --cov --cov-report=term --cov-report=html:.cache/coverage

# The lowest versions that pyproject.toml promises, in an environment of their own.
lowest:
	$(PYTHON) -m venv $(VENV)-lowest
	@if $(VENV)-lowest/bin/python -m pip install $(QUIET) --constraint constraints-lowest.txt \
		--editable ".[$(LOWEST_EXTRAS)]" pytest hypothesis; \
	then $(VENV)-lowest/bin/python -m pytest $(LOWEST_TESTS); \
	else echo "make lowest: SKIPPED, pip found no such versions for this machine (see above)"; fi

pythons: $(OTHER_PYTHONS:%=python-%)

# The tests with another Python, where there is one.
python-%:
	@if ! python$* -c "" 2>/dev/null; then echo "make $@: SKIPPED, there is no python$* here"; \
	else $(MAKE) test PYTHON=python$* VENV=$(VENV)-$*; fi

bench: setup
	$(BIN)/python -m pip install $(QUIET) --no-deps --requirement benchmarks/requirements.txt
	cd benchmarks && ../$(BIN)/python run.py

# What tools made. Runs and studies are the user's, and stay.
clean:
	git clean -fdx --exclude=/runs --exclude=/studies

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
DEMO := $(VENV)/.ready-demo
DEV := $(VENV)/.ready-dev

# Two workers with one thread each use two cores best, and make every test repeatable.
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: setup demo test lint docs bench clean

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
	$(BIN)/python scripts/reference.py

test: lint
	$(BIN)/pytest -n 2

bench: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement benchmarks/requirements.txt
	cd benchmarks && ../$(BIN)/python run.py

clean:
	git clean -fdx

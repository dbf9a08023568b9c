# Every target works from a fresh clone: the first one run makes .venv and installs into it.

VENV := .venv
PYTHON := $(VENV)/bin/python
# One thread a process: the tests already run one process a core.
TEST := OMP_NUM_THREADS=1 $(PYTHON) -m pytest -q -n auto

.PHONY: demo test lint bench clean

demo: $(VENV)/.dev
	$(PYTHON) -m trellis.cli demo

test: lint
	$(TEST)

lint: $(VENV)/.dev
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

bench: $(VENV)/.bench
	$(PYTHON) bench/prune.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/.dev: pyproject.toml constraints.txt
	$(PYTHON) -m pip --version > /dev/null 2>&1 || python3 -m venv --clear $(VENV)
	$(PYTHON) -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(PYTHON) -m pip install --quiet -c constraints.txt -e '.[dev,bench]'
	touch $@

# Every target works from a fresh clone: the first one run makes .venv and installs into it.

VENV := .venv
PYTHON := $(VENV)/bin/python
# One thread a process: the tests already run one process a core.
TEST := OMP_NUM_THREADS=1 $(PYTHON) -m pytest -q -n auto

.PHONY: demo test test-all tools lint api docs bench fuzz page clean

# Five minutes at most on two cores, installation included; without the tools for development.
demo: $(if $(wildcard $(VENV)/.dev),$(VENV)/.dev,$(VENV)/.demo)
	$(VENV)/bin/trellis demo

# Tests that need a system tool which is not here are skipped, and the end of the report names it.
test: lint
	$(TEST)

# The same with nothing skipped for want of a tool.
test-all: tools lint
	TRELLIS_ALL_TOOLS=1 $(TEST)

# Program and Debian package.
TOOLS := gcc:gcc clang:clang node:nodejs chromium:chromium \
    arm-none-eabi-gcc:gcc-arm-none-eabi qemu-system-arm:qemu-system-arm ffmpeg:ffmpeg \
    aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu qemu-aarch64:qemu-user
tools:
	@wanted=""; for pair in $(TOOLS); do \
	    command -v $${pair%%:*} > /dev/null || wanted="$$wanted $${pair#*:}"; done; \
	if [ -n "$$wanted" ]; then \
	    echo "missing:$$wanted"; \
	    { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && apt-get install -y $$wanted; } || \
	    { echo "install them: apt-get install$$wanted"; exit 1; }; fi

lint: $(VENV)/.dev
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	$(VENV)/bin/lint-imports --no-cache --no-logo

# Write the list of public names and signatures anew, after a change of the interface that is meant.
api: $(VENV)/.dev
	$(PYTHON) -m tests.test_api

# The site in site/. A broken link or a missing name is an error.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict

bench: $(VENV)/.bench
	$(PYTHON) bench/prune.py

# The page of `trellis report` is committed built: this is for whoever changes it. Needs node.
page:
	cd report-page && npm ci --ignore-scripts --no-audit --no-fund && npm run build

# The C reader and the parser of recordings, for ten minutes each. Needs clang.
FUZZ_SECONDS := 600
fuzz: $(VENV)/.dev
	PYTHON=$(PYTHON) FUZZ_SECONDS=$(FUZZ_SECONDS) sh fuzz/run.sh

clean:
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -m pip --version > /dev/null 2>&1 || python3 -m venv --clear $(VENV)
	$(PYTHON) -m pip install --quiet -c constraints.txt -e '.[wasm]'
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt
	$(PYTHON) -m pip --version > /dev/null 2>&1 || python3 -m venv --clear $(VENV)
	$(PYTHON) -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(PYTHON) -m pip install --quiet -c constraints.txt -e '.[dev,bench]'
	touch $@

$(VENV)/.docs: $(VENV)/.dev
	$(PYTHON) -m pip install --quiet -c constraints.txt -e '.[dev,docs]'
	touch $@

# Every command of the project. `make demo` and `make test` set up what they need.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests run in this many processes.
JOBS ?= 2
# Each process starts with a run of neighbouring files, whose fixtures it builds once, and takes
# tests from the others when it is through.
WORKERS = -n $(JOBS) --dist worksteal
# What Nova may use of the processor in tests: `make test CPU=x86_64-v3` is as on a machine with AVX2
# only, `CPU=x86_64` as on one with SSE2 only.
CPU ?= all

# Set-up is redone only when something built or installed has changed: Python is used in place.
NATIVE := $(shell find native/CMakeLists.txt native/include native/src -type f)
SETUP := $(VENV)/.setup-done
# The demo does with far less than the tests, which compare with torch and jax.
DEMO := $(VENV)/.demo-done
BENCH := $(VENV)/.bench-done
DOCS := $(VENV)/.docs-done

.PHONY: setup demo test nightly test-persistent test-gpu lint types bench bench-gpu docs clean

setup: $(SETUP)

$(BIN)/python:
	@$(PYTHON) -c 'import sys, sysconfig, ensurepip, os; \
		assert sys.version_info >= (3, 11); \
		assert os.path.exists(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null || \
		{ echo 'Nova needs Python 3.11 or later with venv and headers' \
		'(Debian: apt install python3-venv python3-dev)' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# What the tests need is all that the demo needs.
$(SETUP): pyproject.toml $(NATIVE) | $(BIN)/python
	@echo 'Installing into $(VENV), with torch and jax: minutes and gigabytes the first time'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,dev]'
	touch $@ $(DEMO)

$(DEMO): pyproject.toml $(NATIVE) | $(BIN)/python
	@echo 'Installing into $(VENV): some minutes the first time'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[demo]'
	touch $@

$(BENCH): $(SETUP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	touch $@

$(DOCS): pyproject.toml | $(DEMO)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	touch $@

demo: $(DEMO)
	$(BIN)/python examples/demo.py

test: $(SETUP)
	NOVA_CPU_LEVEL=$(CPU) $(BIN)/python -m pytest $(WORKERS) -m 'not slow and not gpu'

# `make nightly PART=3/8` runs the third of eight parts.
nightly: $(SETUP)
	NOVA_CPU_LEVEL=$(CPU) $(BIN)/python -m pytest $(WORKERS) -m 'not gpu' \
		--hypothesis-profile nightly $(if $(PART),--part $(PART))
	$(MAKE) test-persistent

# The device suites again as tasks of one resident kernel, in three orders of blocks.
test-persistent: $(SETUP)
	for schedule in late early random; do \
		$(BIN)/python -m pytest $(WORKERS) -m 'not gpu' --launch persistent \
		--sim-schedule $$schedule $(if $(PART),--part $(PART)) \
		$$($(BIN)/python tests/support/gpusim/persistent_runs.py) || exit 1; done

# Where a GPU is: in one process, which has its memory to itself.
test-gpu: $(SETUP)
	$(BIN)/python -m pytest -m gpu

lint: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $$(git ls-files '*.c' '*.h')

types: $(SETUP)
	$(BIN)/mypy

bench: $(BENCH)
	$(BIN)/python benchmarks/run.py

# Where a GPU is, and torch and jax that know it.
bench-gpu: $(BENCH)
	$(BIN)/python benchmarks/gpu/run.py
	$(BIN)/python benchmarks/gpu/verdicts.py

# The site in build/site, to be opened from the file system; the variable hides an advertisement.
docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --clean
	@echo 'Open build/site/index.html'

clean:
	rm -rf $(VENV) build dist
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find nova -name '*.so' -delete

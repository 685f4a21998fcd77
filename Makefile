# Everything runs inside .venv, installed from the exact versions in requirements.lock.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
CODE := src tests benchmarks lab-notes examples docs/hooks
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo test test-slow torture lint types-of-package types-of-tests format docs bench bench-speed results wheel lock clean

demo: $(READY)  ## learn from the embedded log, then play the truth: the promise beside what happens
	$(BIN)/python examples/demo.py

# Compiling takes most of the suite's time: compiled programs are kept for the next session, until `make clean`.
test test-slow: export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/build/xla
# Tests train for seconds, so XLA optimises less: half the time to compile, steps nearly as fast (level 0: a fourth).
test test-slow: export XLA_FLAGS ?= --xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1

test: lint  ## lint, then all tests but the slow ones
	$(BIN)/python -m pytest -n auto --dist worksteal

test-slow: $(READY)  ## the slow tests
	$(BIN)/python -m pytest -m slow -n auto --dist worksteal

lint: $(READY)  ## style, types of the package (strict) and of everything else (basic), direction of imports
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(MAKE) --no-print-directory -j2 types-of-package types-of-tests
	$(BIN)/lint-imports

types-of-package: $(READY)
	$(BIN)/pyright

types-of-tests: $(READY)
	$(BIN)/pyright -p tests/pyrightconfig.json

format: $(READY)
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

# An environment of its own: the package and mkdocs, no development tools.
docs: build/docs/.ready  ## the documentation, into site/
	build/docs/bin/mkdocs build --strict --quiet

build/docs/.ready: requirements-docs.lock pyproject.toml
	test -x build/docs/bin/python || $(PYTHON) -m venv build/docs
	build/docs/bin/python -m pip --disable-pip-version-check install --quiet -r requirements-docs.lock
	build/docs/bin/python -m pip --disable-pip-version-check install --quiet --no-deps -e .
	touch $@

torture: export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/build/xla
torture: $(READY)  ## kills and full disks: minutes, and a table
	$(BIN)/python -m tests.torture

bench-speed: $(READY)  ## updates per second on the device found
	$(BIN)/python benchmarks/speed.py

bench: $(READY)  ## a small bench on the embedded dataset, and its tables
	$(BIN)/sbac bench --tasks hopper-demo --algorithms sbac td3-bc bc --seeds 2 --no-grid --out build/bench
	$(BIN)/sbac report build/bench --markdown build/bench.md

results: $(READY)  ## tables and figures of docs/results.md, from the raw evaluations in lab-notes/table
	$(BIN)/sbac report lab-notes/table lab-notes/table/published --developed-on lab-notes/table/development --markdown docs/results.md

wheel: $(READY)  ## a wheel and a source archive, into dist/
	$(BIN)/python -m build

lock: $(READY)  ## renew the locked versions
	$(PIP) install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --no-header --python-version 3.11 --extra dev pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --no-header --python-version 3.11 --extra docs --constraint requirements.lock pyproject.toml -o requirements-docs.lock

clean:
	rm -rf .venv build dist site runs

$(READY): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) install --quiet -r requirements.lock
	$(PIP) install --quiet --no-deps -e .
	touch $@

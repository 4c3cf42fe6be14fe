PYTHON ?= python3.11
BIN := .venv/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check install --no-compile --constraint constraints.txt
# Python compiles the modules that are imported and keeps them, where pip would compile all
export PYTHONDONTWRITEBYTECODE :=

ELSEWHERE := $(PYTHON) tests/tools/environments.py

.PHONY: test-elsewhere test-farthest newest report-newest test-lowest test-extras
.PHONY: demo test test-fast test-slow lint bench bench-history faults notebooks docs tables clean

demo: .venv/demo
	$(BIN)/ppgp compare diabetes --target target --models gp,linear --how map,laplace,svi,nuts --level 0.9 --out report/

# side by side, as the type checker uses one core
test: .venv/test
	$(MAKE) --no-print-directory --jobs 2 lint test-fast

# arguments are checked against their annotations by make test-farthest, and where pytest is called
# directly: the checks take a quarter of the time
test-fast: .venv/test
	PPGP_CHECK_TYPES=0 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not slow"

test-slow: .venv/test
	PPGP_CHECK_TYPES=0 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist loadscope -m slow

# each makes environments of its own in .venv-elsewhere
test-elsewhere:
	$(ELSEWHERE) elsewhere

test-farthest:
	$(ELSEWHERE) farthest

newest:
	$(ELSEWHERE) newest

report-newest:
	$(ELSEWHERE) report

test-lowest:
	$(ELSEWHERE) lowest

test-extras:
	$(ELSEWHERE) extras

lint: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/basedpyright

bench: .venv/bench
	OMP_WAIT_POLICY=ACTIVE $(BIN)/python -m pytest tests/bench --benchmark-only -q -s -p no:xdist

bench-history: .venv/bench
	mkdir -p .benchmarks && rm -f .benchmarks/run.json
	-OMP_WAIT_POLICY=ACTIVE $(BIN)/python -m pytest tests/bench --benchmark-only -q -s -p no:xdist --benchmark-json=.benchmarks/run.json
	$(BIN)/python tests/tools/bench_history.py .benchmarks/run.json

faults: .venv/test
	MPLBACKEND=Agg timeout 2400 $(BIN)/python -m tests.faults.campaign

notebooks: .venv/test
	$(BIN)/python -m notebooks.build

docs: .venv/docs
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/build/html

tables: .venv/test
	$(BIN)/python tests/tools/members.py --write
	$(BIN)/python tests/tools/matrix.py --write
	$(BIN)/python tests/tools/advice.py --write
	$(BIN)/python tests/tools/dtypes.py --write
	$(BIN)/python tests/tools/table_of_programs.py --write

# a newer pip installs in half the time
.venv/bin/python:
	$(PYTHON) -m venv --upgrade-deps .venv

.venv/demo: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) --editable ".[boost]"
	touch $@

.venv/test: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) --editable ".[test]"
	touch $@ .venv/demo

.venv/docs: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) --editable ".[docs]"
	touch $@

.venv/bench: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) --editable ".[test,bench]"
	touch $@

clean:
	rm -rf .venv .venv-elsewhere report build dist docs/build docs/notebooks docs/api/ppgp.*.rst

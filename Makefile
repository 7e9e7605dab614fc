PYTHON ?= python3
BIN := .venv/bin

.PHONY: test test-tools fuzz demo docs figures bench bench-data lint clean

test: .venv/installed lint docs  ## linters, documentation and all tests
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal

TOOLS := .venv-tools/bin
test-tools: .venv-tools/installed  ## the doors whose packages are too large for `make test`, in an environment of their own
	$(TOOLS)/python -m pytest -rs tests/training/test_trackers.py tests/models/test_pytrees.py tests/integrations/test_darts.py

N ?= 10000
SEED ?= 0
fuzz: .venv/installed  ## N random calls and N / 20 command lines: each works, or is refused by name
	PYTHONPATH=tests $(BIN)/python -m fuzz $(N) $(SEED)

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

demo: .venv/installed  ## train a small character model on Python's own library, and write a report
	$(BIN)/trellisnet train demo

docs: .venv/installed  ## build the documentation in site/; broken links are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

figures: .venv/installed  ## regenerate the documentation's figures and tables
	$(BIN)/python docs/figures/make.py

bench: .venv/installed  ## measure speed, memory and streaming; writes benchmarks/results.json
	$(BIN)/python benchmarks/run.py

bench-data: .venv/installed  ## measure tokenisation; writes benchmarks/tokenise.json
	$(BIN)/python benchmarks/tokenise.py

# constraints.txt pins every version; torch 2.13.0 is the CPU build if one is available
.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 5) and "constraints.txt needs Python 3.11.5 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev,docs,bench]"
	touch $@

# it sees the packages of .venv, so that torch is installed once; what is added has no constraints
PLACE := import sysconfig; print(sysconfig.get_path("purelib"))
.venv-tools/installed: .venv/installed
	$(PYTHON) -m venv .venv-tools
	echo "import site; site.addsitedir('$$($(BIN)/python -c '$(PLACE)')')" > "$$($(TOOLS)/python -c '$(PLACE)')/main.pth"
	$(TOOLS)/python -m pip install --quiet --upgrade pip
	$(TOOLS)/python -m pip install --quiet darts lightning mlflow trackio wandb
	touch $@

clean:
	rm -rf .venv .venv-tools .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist site

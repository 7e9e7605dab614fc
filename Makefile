PYTHON ?= python3
BIN := .venv/bin

.PHONY: test demo docs figures bench bench-data lint clean

test: .venv/installed lint docs  ## everything that guards the project
	$(BIN)/python -m pytest

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

demo: .venv/installed  ## train a small character model on Python's own library, and write a report
	$(BIN)/trellisnet train demo

docs: .venv/installed  ## the documentation as a site, in site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

figures: .venv/installed  ## draw the documentation's figures and tables anew
	$(BIN)/python docs/figures/make.py

bench: .venv/installed  ## speed, memory and streaming as ratios, in benchmarks/results.json
	$(BIN)/python benchmarks/run.py

bench-data: .venv/installed  ## tokenising speed and memory, in benchmarks/tokenise.json
	$(BIN)/python benchmarks/tokenise.py

# constraints.txt pins every version; torch 2.13.0 there is the CPU build where one is at hand
.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 5) and "constraints.txt needs Python 3.11.5 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev,docs,bench]"
	touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist site

# Every target sets up what it needs: Python (3.10 or newer), pip and make are enough.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: demo test test-slow bench dist docs format clean
.DEFAULT_GOAL := test

demo: .venv/.core  ## adapt on corrupted images and show what it brings
	$(BIN)/ttc demo

test: .venv/.dev  ## format, lint, types, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict src tests $(wildcard benchmarks tools examples)
	$(BIN)/pytest

test-slow: .venv/.dev  ## the tests that take minutes, and the notebooks of the documentation
	$(BIN)/pytest -m slow

bench: .venv/.bench  ## ratios measured side by side in one run
	for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

docs: .venv/.docs  ## the documentation site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html; with search: $(BIN)/python -m http.server -d site"

dist: .venv/bin/python  ## wheel and sdist, checked; the same bytes from the same files
	$(PIP) build twine hatchling
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*

format: .venv/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv build dist site .mypy_cache .pytest_cache .ruff_cache

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.core: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[report]'
	touch $@

.venv/.dev: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[dev]'
	touch $@ .venv/.core

.venv/.bench: .venv/.dev
	$(PIP) --editable '.[bench]'
	touch $@

.venv/.docs: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[docs]'
	touch $@ .venv/.core

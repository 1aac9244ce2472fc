# What a person types. Every target sets up what it needs first; that takes a second when all is there.
#
#   PYTEST=...   arguments for pytest, as in: make test PYTEST='tests/unit -k plan'
#   BENCH=...    sections for the bench, as in: make bench BENCH=analysis (default: all)
#   KV_SETUP, KV_KERNEL_SOURCE, KV_KERNEL_CACHE, KV_KERNEL_JOBS: see scripts/setup.sh

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
BIN := .venv/bin
PYTEST ?=
BENCH ?=

.PHONY: help setup python demo check unit coverage test bench clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

setup: ## install packages, make the Python environments, build the lab's kernel (once)
	@scripts/setup.sh

python:
	@scripts/setup.sh python

demo: setup ## set up, then run the shipped scenario incast: a table here, a page under runs/
	@$(BIN)/testbed run incast

check: python ## ruff, mypy and import-linter
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

unit: python ## the tests that need no root and no lab
	$(BIN)/python -m pytest tests/unit $(PYTEST)

coverage: python ## the unit tests, and what of the offline half they do not reach
	$(BIN)/python -m coverage run -m pytest tests/unit $(PYTEST)
	$(BIN)/python -m coverage report

test: export KV_TESTS = 1
test: setup check ## set up, then the checks and every test
	$(BIN)/python -m pytest $(PYTEST)

bench: setup ## measure seconds and memory, and write docs/performance.md; no part of the tests
	@$(BIN)/testbed bench $(BENCH) --results docs/performance --page docs/performance.md

clean: ## remove caches; leaves runs/, the Python environments and the kernel
	@rm -rf .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build ./*.egg-info
	@find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +

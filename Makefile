# Every target sets up what it needs by itself, in .venv; a Python from 3.11 up and make are enough to begin.
# Written for GNU make 3.81 (the one that macOS brings) and a plain sh.

# The interpreter to build with, a name or a path; without it tools/setup finds one.
PYTHON ?=
# How many processes share the tests; 0 for none, which a debugger wants. auto: see tests/conftest.py.
WORKERS = auto
# More for the command behind a target: make test ARGS="-k breaker"
ARGS =

SHELL = /bin/sh
.DEFAULT_GOAL = help
.NOTPARALLEL:
.PHONY: help demo test check test-full mutants chaos bench docs test-all coverage format python clean

# What the caller's shell has set for an environment of its own must not reach into ours.
unexport PYTHONHOME PYTHONPATH VIRTUAL_ENV
# Nor that nothing compiled is kept: the tests start Python hundreds of times, and pytest rewrites a thousand modules. To
# collect them takes 25 seconds without what the last run has kept, and 8 with it.
unexport PYTHONDONTWRITEBYTECODE
export PYTHON

setup = @sh tools/setup .venv
run = .venv/bin/python -m
spread = -n $(WORKERS)

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s  %s\n", $$1, $$2 }' Makefile

demo: ## see it at work
	$(setup) dashboard,rich
	@.venv/bin/mainspring demo $(ARGS)

# Being measured costs the tests two thirds more; so only those of core/ are, which have to reach all of it by themselves.
test: ## run the tests: every contract on every store, CLI, web, browser, docs, short chaos (about 13 minutes)
	$(setup) test,docs
ifeq ($(strip $(ARGS)),)
	@$(run) coverage erase
	@$(run) coverage run -m pytest -q $(spread) tests/core
	@$(run) coverage combine --quiet
	@$(run) coverage report --format=total >/dev/null || $(run) coverage report
	@echo "core/ is covered to the last branch."
	@$(run) pytest $(spread) --ignore=tests/core
else
	@$(run) pytest $(spread) $(ARGS)
endif

check: ## check format, lint and types, and run the fast tests; before each commit (about 2 minutes)
	$(setup) dev
	@$(run) ruff format --check --quiet .
	@$(run) ruff check --quiet .
	@$(run) mypy
	@$(run) pytest -q $(spread) -m "not slow" $(ARGS)

test-full: ## run all tests: every PostgreSQL, driver and Python, more random comparisons, longer chaos
	$(setup) test,docs
	@MAINSPRING_TESTS=full $(run) pytest $(spread) $(ARGS)
	@MAINSPRING_TESTS=full .venv/bin/python tools/test_all.py --others $(ARGS)

mutants: ## apply the faults of tests/mutants/, and list which tests find them; ARGS="core --tier check"
	$(setup) dev,docs
	@.venv/bin/python tools/mutants.py $(ARGS)

chaos: ## kill nodes and database servers for minutes instead of seconds, and look whether anything was lost
	$(setup) test
	@MAINSPRING_TESTS=full $(run) pytest -v -n 0 tests/chaos $(ARGS)

bench: ## run the benchmarks in bench/ and print their tables
	$(setup) test,bench
	@.venv/bin/python bench $(ARGS)

docs: ## build the documentation into site/
	$(setup) docs
	@$(run) zensical build --clean --strict

test-all: ## run the tests on every Python from 3.11 up that this machine has; ARGS=--others leaves out that of .venv
	$(setup) test
	@.venv/bin/python tools/test_all.py $(ARGS)

coverage: ## show line by line, in htmlcov/, what the tests reach in the whole package
	$(setup) test
	@$(run) coverage erase
	@$(run) coverage run --source=src/mainspring -m pytest -q $(spread) $(ARGS)
	@$(run) coverage combine --quiet
	@$(run) coverage html --quiet --fail-under=0
	@$(run) coverage report --fail-under=0

format: ## rewrite the code the way `make check` wants it
	$(setup) dev
	@$(run) ruff check --fix --silent --exit-zero . # what it cannot mend is for `make check` to tell
	@$(run) ruff format .

python: ## open a Python prompt that can import mainspring
	$(setup)
	@.venv/bin/python $(ARGS)

clean: ## remove what these commands have made, the environments included
	rm -rf .venv .venvs .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.* .cache htmlcov site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

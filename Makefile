# The commands of the house. `make demo` and `make test` set up what they need.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
# Another build of torch, e.g. TORCH="torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu".
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PARTS := $(wildcard packages/*/pyproject.toml services/*/pyproject.toml requirements/*.txt)
PIP := $(BIN)/pip --disable-pip-version-check install -qq -c requirements/constraints.txt

# torch makes this folder in the system's temporary one otherwise, and leaves it there.
export TORCHINDUCTOR_CACHE_DIR := $(CURDIR)/.safactory/cache/torchinductor

.PHONY: help install demo test lint unit flows e2e rules connected proto dev up down clean

help:  ## Show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(STAMP)  ## Create .venv and install every part

$(STAMP): $(PARTS)
	@echo "installing into $(VENV): about 2 minutes on a new machine"
	@started=$$(date +%s); set -e; \
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info[:2] >= (3, 11) else "Python 3.11 or newer is needed: make PYTHON=…")'; \
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV); \
	echo "  $(TORCH), and what builds the parts"; \
	$(PIP) $(TORCH) hatchling editables setuptools wheel; \
	echo "  the parts and their dependencies"; \
	$(PIP) --no-build-isolation -r requirements/dev.txt; \
	touch $(STAMP); echo "installed in $$(( $$(date +%s) - started )) s"

demo: $(STAMP)  ## Train a small model on FrozenLake with the whole factory
	@exec $(BIN)/safactory demo

test: $(STAMP) lint  ## Lint, types, rules, unit tests, flows on the embedded broker, and the whole stack
	$(BIN)/python -m pytest -q -n 2 --dist loadfile tests

lint: $(STAMP)  ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy packages/*/src services/*/src environments tests benchmarks

unit rules flows e2e: $(STAMP)  ## One folder of tests
	$(BIN)/python -m pytest -q tests/$@

connected: $(STAMP)  ## The flows on the brokers of SAFACTORY_TEST_KAFKA and SAFACTORY_TEST_S3
	$(BIN)/python -m pytest -q -n 2 --dist loadfile tests/flows

proto: $(STAMP)  ## Regenerate the gRPC stubs
	proto/generate

up: $(STAMP)  ## Start a local stack that stays up
	$(BIN)/safactory up

down:  ## Stop it
	$(BIN)/safactory down

dev: $(STAMP)  ## All services in this terminal, from Procfile and .env
	$(BIN)/honcho start

clean:  ## Remove what the commands made
	rm -rf $(VENV) .safactory out .mypy_cache .ruff_cache .pytest_cache

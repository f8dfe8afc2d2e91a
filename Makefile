# The commands of this repository. Each one works on a fresh clone: it makes .venv first where that is missing.
SHELL := /bin/bash
.DEFAULT_GOAL := help

VENV ?= .venv
# The first Python of at least 3.11; `make PYTHON=/path/to/python3 …` chooses another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# More words for the command that a target runs: `make demo ARGS="--rounds 12"`, `make test ARGS="tests/protocol -k tls"`.
ARGS ?=
# Simulated runs: how many seeds, or one of them with its story.
SEEDS ?= 200
SEED ?=
# One benchmark (`codec_int8`) or one area (`codec`).
ONLY ?=

.PHONY: help setup demo demo-rl test check bench eval-toploc sim soak fuzz screenshots rows docs format wheel clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{ printf "  make %-12s %s\n", $$1, $$2 }'

setup: $(STAMP) ## Make .venv and install everything, with the versions of constraints.txt

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "No Python of version 3.11 or newer was found. Install one, or say make PYTHON=/path/to/python3."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
		echo "$(PYTHON) cannot make virtual environments. Install its venv module (Debian: apt install python3-venv)."; exit 1; }
	@echo "Installing into $(VENV). The first time this takes some minutes."
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt setuptools
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev,rl,coordinator]'
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev,rl,coordinator,verifiers]' || \
		echo "The package verifiers cannot be installed here. Its environments, and their tests, are left out."
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev,rl,coordinator,gossip]' || \
		echo "Gossip cannot be installed here (it needs a C compiler and GMP's headers; Debian: gcc libgmp-dev). Nodes go without it."
	@$(BIN)/python -m toploc.warming
	@touch $@

demo: setup ## Train a small model with a swarm of nodes on this machine (5 minutes)
	$(BIN)/intellect-node demo $(ARGS)

demo-rl: setup ## Reinforcement learning with strangers, one of whom cheats (5 minutes)
	$(BIN)/intellect-node demo --rl $(ARGS)

test: setup ## Run the tests
	@$(BIN)/python -m pytest -m "not soak" -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 $(ARGS) || { test $$? -eq 1 || exit 1; \
		echo "What failed is run once more, alone: on busy cores real processes may miss a deadline."; \
		$(BIN)/python -m pytest -m "not soak" --last-failed --last-failed-no-failures none $(ARGS); }

check: setup ## Lint, format, types, import contracts, wire, wheel, rows
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/intellect-node messages check
	$(BIN)/python -m tests.repository.sdk_page
	$(BIN)/python -m tests.repository.wheel dist
	$(BIN)/python -m tests.repository.rows

bench: setup ## Run the benchmarks (ONLY=name or area); results in runs/bench
	@$(BIN)/python -c 'import gguf' 2>/dev/null || $(BIN)/python -m pip install -qq --disable-pip-version-check \
		-c constraints.txt gguf || echo "gguf cannot be installed here, so shardcast_delta cannot run."
	$(BIN)/python -m tests.bench $(ONLY)

eval-toploc: setup ## Show on a real model what proofs of inference detect (45 minutes); writes docs/toploc.md
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[eval]'
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore -m tests.eval.toploc $(ARGS)

sim: setup ## Simulated runs under random faults (SEEDS=200, or SEED=17 for one with its story)
	$(BIN)/python -m tests.sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(ARGS)

soak: setup ## Run the slow suites
	$(BIN)/python -m pytest -m soak -o timeout=7200 -o faulthandler_timeout=0 $(ARGS) || { status=$$?; test $$status -eq 5 && echo "There is no slow suite yet."; }

fuzz: setup ## Fuzz every decoder for a minute in all (ARGS="--seconds 600", or the names of some)
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/python -m pip install -qq --disable-pip-version-check \
		-c constraints.txt atheris || echo "atheris cannot be installed here."
	$(BIN)/python -m tests.fuzz $(ARGS)

screenshots: setup ## Write pictures of every page of the dashboard to runs/screenshots
	$(BIN)/python -m tests.node.coordinator.screenshots runs/screenshots

rows: setup ## Show which tests pin which row of docs/failure-modes.md
	@$(BIN)/python -m tests.repository.rows

docs: setup ## Write the generated parts of docs/, and protocol/schema
	$(BIN)/python -m tests.repository.troubleshooting
	$(BIN)/python -m node.runfile_example > docs/run.example.toml.new
	mv docs/run.example.toml.new docs/run.example.toml
	$(BIN)/python -m tests.repository.wire

format: setup ## Put the code into its one format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: setup ## Build the wheel into dist/
	$(BIN)/python -m tests.repository.wheel dist

clean: ## Remove what the other commands made, .venv included
	rm -rf $(VENV) build dist runs *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

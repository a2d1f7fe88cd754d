# Everything needs Python 3.11 or newer and make; the rest is put into .venv on first use.
#   make demo PYTHON=/path/to/python    uses that interpreter instead of looking for one

VENV   := .venv
BIN    := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY  := $(VENV)/.ready
PYTHON ?=
ARGS   ?=

# The first of these that runs, is new enough and can make a virtual environment.
CANDIDATES := $(if $(PYTHON),$(PYTHON),python3 python3.13 python3.12 python3.11 python3.14 python)
SUITABLE   := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
# Python compiles what it imports, once; pip would compile everything, which takes longer than the rest of its work.
# It keeps what it has compiled, whatever the caller's shell says: otherwise every command would begin with it anew.
unexport PYTHONDONTWRITEBYTECODE
PIP        := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet install --no-compile --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long check docs pictures ratchet bench bench-horizontal bench-central bench-vertical bench-shares bench-masked-xgboost bench-estimate bench-scale experiments-central experiments-federboost experiments-mp-fedxgb experiments-masked-xgboost clean

help:
	@echo "make demo    train on a real dataset and show the result; installs what Hedgerow needs, and no more"
	@echo "make setup   create .venv with all that working on it needs, in pinned versions (again when they change)"
	@echo "make test    run the tests (about 25 minutes on two cores)"
	@echo "make test-long   run the tests that take longer, which make test leaves out"
	@echo "make check   lint, format, types and house rules: quick, before every commit"
	@echo "make docs    build the documentation as a site, in site/"
	@echo "make pictures   take the pictures of the documentation anew (needs Debian's chromium)"
	@echo "make ratchet   write down what has got better in tests/policy/ratchet.json"
	@echo "make bench   compare speed, memory and accuracy with XGBoost and LightGBM (minutes)"
	@echo "make bench-horizontal   time, rounds and bytes of horizontal.secure_sum beside XGBoost (20 minutes)"
	@echo "make bench-central      time per tree of central.dpboost beside LightGBM (minutes)"
	@echo "make bench-vertical     all vertical protocols side by side: time, rounds, bytes, memory (25 minutes)"
	@echo "make bench-shares       time, rounds, bytes and memory of vertical.secret_shared (10 minutes)"
	@echo "make bench-masked-xgboost   time and memory of masked gradients, private histograms beside shares (10 minutes)"
	@echo "make bench-estimate     how near hedgerow estimate comes to what then happens (8 minutes)"
	@echo "make bench-scale        curves of time and memory against rows, columns, owners, actors (an hour or more)"
	@echo "make experiments-central   the DPBoost paper's figures, and other private learners (an hour or two)"
	@echo "make experiments-federboost   the FederBoost paper's figures and times, columns split (10 minutes)"
	@echo "make experiments-mp-fedxgb    the MP-FedXGB paper's tables, figures and times, on secret shares (20 minutes)"
	@echo "make experiments-masked-xgboost   the MaskedXGBoost paper's figures, attacks and times (30 minutes)"
	@echo "make clean   remove .venv and everything that tools leave behind"
	@echo
	@echo "make test ARGS='tests/engine -k binning' passes arguments on; so do demo and bench."

setup: $(READY)

# What it takes to run Hedgerow. pip reports errors only. The build backend is installed first, pinned like everything
# else, because an isolated build would fetch one of its own choice.
$(INSTALLED): pyproject.toml constraints.txt
	@python=; \
	for candidate in $(CANDIDATES); do \
	    if "$$candidate" -c "$(SUITABLE)" >/dev/null 2>&1; then python="$$candidate"; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	    echo "Hedgerow needs Python 3.11 or newer with the venv module; none of these will do: $(CANDIDATES)." >&2; \
	    echo "Install one (on Debian and Ubuntu also the package python3-venv), or name it: make setup PYTHON=..." >&2; \
	    exit 1; \
	fi; \
	if ! "$(BIN)/python" -c "$(SUITABLE)" >/dev/null 2>&1; then \
	    echo "Creating $(VENV) with $$("$$python" --version) ..."; \
	    "$$python" -m venv --clear "$(VENV)"; \
	fi
	@echo "Installing Hedgerow with its pinned packages into $(VENV) (half a minute, once) ..."
	@$(PIP) hatchling
	@$(PIP) --no-build-isolation --editable .
	@touch $@

# And what it takes to work on it. Hedgerow itself is there already, so pip only adds what this extra asks for.
$(READY): $(INSTALLED)
	@echo "Installing what tests and checks need (half a minute, once) ..."
	@$(PIP) 'hedgerow[dev]'
	@touch $@

demo: $(INSTALLED)
	@$(BIN)/hedgerow demo $(ARGS)
	@echo "The command is $(BIN)/hedgerow; 'source $(BIN)/activate' lets you type hedgerow alone."

# Two test files at a time; ARGS='-n 0' runs all in one process.
test: $(READY)
	@$(BIN)/python -m pytest -n 2 --dist loadfile -m "not long" $(ARGS)

# pytest's exit code 5 means that no test is marked `long`, which is no failure.
test-long: $(READY)
	@$(BIN)/python -m pytest -n 2 -m long $(ARGS) || [ $$? -eq 5 ]

# One rule runs a training, and kernels may have to be compiled for it first: it is left to make test.
SLOW_RULES := --ignore tests/policy/test_files_visited.py

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest --quiet tests/policy $(SLOW_RULES)

# Writes down what has got better, so that it cannot get worse again; forgives nothing new.
ratchet: $(READY)
	@HEDGEROW_LOWER_RATCHET=1 $(BIN)/python -m pytest --quiet tests/policy

# Needed by nobody else, so it is installed only here. The variable silences a notice about the theme's successor, which
# docs/decisions/0003-dependencies.md speaks of. No --quiet: it would also silence --strict.
$(VENV)/.docs: $(READY)
	@$(PIP) 'hedgerow[docs]'
	@touch $@

docs: $(VENV)/.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site/index.html ($(BIN)/python -m http.server --directory site shows it)"

# Of the report and of the live page, by a real browser: docs/report.webp, docs/watching.webp.
pictures: $(READY)
	@PYTHONPATH=tests $(BIN)/python tests/twins/pictures.py

# The peers' OpenMP threads wait without spinning, so that none slows down the one that is timed next.
bench: $(READY)
	@OMP_WAIT_POLICY=passive $(BIN)/python benchmarks/engine.py $(ARGS)

bench-horizontal: $(READY)
	@OMP_WAIT_POLICY=passive $(BIN)/python benchmarks/horizontal.py $(ARGS)

bench-central: $(READY)
	@OMP_WAIT_POLICY=passive $(BIN)/python benchmarks/central_dp.py $(ARGS)

bench-vertical: $(READY)
	@OMP_WAIT_POLICY=passive $(BIN)/python benchmarks/vertical.py $(ARGS)

bench-shares: $(READY)
	@OMP_WAIT_POLICY=passive $(BIN)/python benchmarks/secret_shared.py $(ARGS)

bench-masked-xgboost: $(READY)
	@OMP_WAIT_POLICY=passive $(BIN)/python benchmarks/masked_xgboost.py $(ARGS)

bench-estimate: $(READY)
	@$(BIN)/python benchmarks/estimate.py --seconds 30 --minutes 8 $(ARGS)

bench-scale: $(READY)
	@OMP_WAIT_POLICY=passive $(BIN)/python benchmarks/scale.py $(or $(ARGS),all)

# Plots and one peer are needed by nobody else, so they are installed only here.
$(VENV)/.experiments: $(READY)
	@$(PIP) 'hedgerow[experiments]'
	@touch $@

experiments-central: $(VENV)/.experiments
	@OMP_NUM_THREADS=1 $(BIN)/python -m experiments.central_dp $(ARGS)

# Times are measured too, so XGBoost's threads wait without spinning, as in the benchmarks.
experiments-federboost: $(VENV)/.experiments
	@OMP_WAIT_POLICY=passive $(BIN)/python -m experiments.federboost $(ARGS)

experiments-mp-fedxgb: $(VENV)/.experiments
	@OMP_WAIT_POLICY=passive $(BIN)/python -m experiments.mp_fedxgb $(ARGS)

experiments-masked-xgboost: $(VENV)/.experiments
	@OMP_WAIT_POLICY=passive $(BIN)/python -m experiments.masked_xgboost $(ARGS)

clean:
	rm -rf $(VENV) build dist site .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name .git -prune -o -type d \( -name __pycache__ -o -name .mypy_cache -o -name .ruff_cache \) -prune -exec rm -rf {} +

# Needs only Python >= 3.11, make and a C compiler; everything else is set up in $(VENV).
PYTHON ?= python3
VENV ?= .venv
SWEEP ?= sweeps/matmul.yaml
ARGS ?=

BIN := $(VENV)/bin
OLDEST := $(VENV)/oldest
READY := $(VENV)/.ready
OLDEST_READY := $(OLDEST)/.ready
PYTEST := -m pytest -n auto --maxprocesses 8
PIP := -m pip --disable-pip-version-check install --quiet

# The torch of a machine that has none and no GPU; elsewhere the torch that is there is used.
TORCH := torch==2.13.0
# numpy 2.4 took away what the interpreter of Triton 3.6 calls.
OLDEST_PINS := triton==3.6.0 'numpy<2.4'

# Public kernels that nobody here decorated, for tests alone. They ask for more than they need.
LIGER := liger-kernel==0.8.5
OTHERS := $(LIGER) fla-core==0.6.0 torchao==0.18.0 gemlite==0.6.0.post2 \
  cut-cross-entropy==25.1.1 conch-triton-kernels==1.3 einops==0.8.2 tqdm==4.70.1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup sweep lock test lint types check test-oldest test-others gpu bench schema

help:          ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/ \t/' | expand -t 14

setup: $(READY)          ## the environment in .venv, made once and again when pyproject.toml changes

sweep: $(READY)          ## set up, then tune the matmul (SWEEP=file for another, ARGS=options)
	$(BIN)/tritune sweep $(SWEEP) $(ARGS)

lock: $(READY)           ## measure what is stale on this machine's GPU, and show what changed
	$(BIN)/tritune sweep --stale $(ARGS)
	$(BIN)/tritune diff

test: $(READY)           ## set up, then all tests that need no GPU (ARGS='-k name' for some)
	$(BIN)/python $(PYTEST) -m "not gpu and not others" $(ARGS)

lint: $(READY)           ## style
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)          ## mypy, strict
	$(BIN)/mypy

check: lint types test   ## all that CI runs

test-oldest: $(OLDEST_READY)  ## what depends on Triton, under the oldest one supported
	$(OLDEST)/bin/python $(PYTEST) -m "lowering and not newest"
	$(OLDEST)/bin/python $(PYTEST) -m "not gpu" tests/test_lock*.py tests/test_runtime.py \
	  tests/test_launcher.py tests/test_adopt.py tests/test_wrappers.py tests/test_dynamo.py

test-others: $(READY)    ## ops of public packages whose kernels nobody decorated; installs them
	$(BIN)/python $(PIP) --no-deps $(OTHERS)
	$(BIN)/python -m pytest tests/test_liger.py tests/test_public.py tests/test_public_references.py $(ARGS)

gpu: $(READY)            ## the contract tests on this machine's GPU
	$(BIN)/python -m pytest -m gpu $(ARGS)

bench: $(READY)          ## the benchmarks, one after the other
	@set -e; for each in tests/benchmarks/bench_*.py; do echo "$$each"; $(BIN)/python "$$each"; done

schema: $(READY)         ## write the JSON Schema of sweep files from the code
	$(BIN)/python -m tritune.spec > $(VENV)/sweep.schema.json
	mv $(VENV)/sweep.schema.json tritune/sweep.schema.json

# A torch that this machine's own Python imports is never replaced: with a GPU it is pinned as it
# is, because the wheels of a package index may be for another driver.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'error: tritune needs Python 3.11 or later' >&2; \
	    echo 'hint: make PYTHON=python3.12 ...' >&2; exit 2; }
	@for each in $$CC gcc clang; do command -v $$each >/dev/null && exit 0; done; \
	  echo 'error: no C compiler found, and Triton needs one' >&2; \
	  echo 'hint: install gcc or clang, or set CC' >&2; exit 3
	@set -e; \
	gpu=no; if nvidia-smi -L 2>/dev/null | grep -q GPU || [ -e /dev/kfd ]; then gpu=yes; fi; \
	theirs=no; \
	if $(PYTHON) -c "import torch; assert '$$gpu' == 'no' or torch.cuda.is_available()" \
	  2>/dev/null; then theirs=yes; fi; \
	echo "setting up $(VENV) (GPU: $$gpu, torch of $(PYTHON) is used: $$theirs)"; \
	if [ $$theirs = yes ]; then \
	  $(PYTHON) -m venv --system-site-packages $(VENV); \
	  $(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	    > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/theirs.pth"; \
	else $(PYTHON) -m venv $(VENV); fi; \
	: > $(VENV)/pins.txt; \
	if [ $$theirs = yes ] && [ $$gpu = yes ]; then \
	  $(BIN)/python -c 'from importlib.metadata import distributions; print(*sorted({\
	    f"{d.name}=={d.version}" for d in distributions() if d.name in ("torch", "triton")}),\
	    sep="\n")' > $(VENV)/pins.txt; \
	elif [ $$theirs = no ] && [ $$gpu = no ]; then \
	  echo "installing $(TORCH)"; $(BIN)/python $(PIP) $(TORCH); \
	fi; \
	echo "installing tritune and what it needs"; \
	$(BIN)/python $(PIP) --constraint $(VENV)/pins.txt --editable '.[dev]'; \
	$(BIN)/python $(PIP) --no-deps $(LIGER) || \
	  echo 'no $(LIGER) to be had: tests/test_liger.py is skipped'
	@touch $@

# Stands on the first environment and puts only the older Triton and numpy before it.
$(OLDEST_READY): $(READY)
	@set -e; echo "setting up $(OLDEST) ($(OLDEST_PINS))"; \
	$(BIN)/python -m venv $(OLDEST); \
	site='import sysconfig; print(sysconfig.get_path("purelib"))'; \
	echo "import site; site.addsitedir('$$($(BIN)/python -c "$$site")')" \
	  > "$$($(OLDEST)/bin/python -c "$$site")/newest.pth"; \
	$(OLDEST)/bin/python $(PIP) --no-deps --ignore-installed $(OLDEST_PINS)
	@touch $@

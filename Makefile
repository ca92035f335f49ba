# Each verb makes what it needs, the virtual environment included, and names what the machine lacks.

PYTHON ?= python3
VENV ?= .venv
BIN := $(abspath $(VENV))/bin
PY := $(BIN)/python

PYX := $(shell find fastwire daemon -name '*.pyx')
TOY := tests/toy/fastwire_toy/scan.pyx
SOURCES := $(PYX) $(TOY) tests/toy/setup.py $(shell find fastwire daemon -name '*.pxd' -o -name '*.h')
UNBUILT := $(strip $(foreach name,$(PYX:.pyx=) $(TOY:.pyx=),$(if $(wildcard $(name).*.so),,$(name))))
STUBBED := $(foreach name,$(PYX:.pyx=),$(if $(wildcard $(name).pyi),$(name)))
STUBBED_MODULES := $(patsubst daemon.%,fastwire_daemon.%,$(subst /,.,$(STUBBED)))
PROTOS := $(shell cd proto && find . -name '*.proto')
CODEC_TESTS := tests/fastwire

# Stamps: a second call finds its work done.
MADE := $(VENV)/.made
INSTALLED := $(VENV)/.installed
BUILT := $(VENV)/.built
SPARK := $(VENV)/.spark
PEERS := $(VENV)/.peers
PROTOC := build/protoc/.made
DELTA := build/delta/.made

# Most tests that take long wait: for a broker, and unit tests for a delay to pass. So there are more of them at once
# than there are cores: four with brokers and Spark (see tests/support/sharing.py), and one beside them that computes.
# WORKERS=0: one after the other.
WORKERS ?= 5
PYTEST = $(BIN)/pytest -n $(WORKERS) --no-loadscope-reorder

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Where bytecode is not kept, each worker rewrites the asserts of all tests, and each daemon that they start compiles all
# that it imports. `make clean` takes it away.
unexport PYTHONDONTWRITEBYTECODE
# That folders here are found before installed packages is what an installation in place is for: no warning of it.
IN_PLACE = PYTHONWARNINGS='ignore:Editable installation' $(PY) -m pip install -q --no-build-isolation -e

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: force help build demo check test lint docs dist bench soak asan asan-build debug proto clean

help:
	@echo 'make build    the virtual environment ($(VENV)) and the compiled modules'
	@echo 'make demo     a million records from a broker into Parquet; BROKER=real for a real one'
	@echo 'make check    lint, types, unit tests'
	@echo 'make test     everything: check, packaging, model, crash, Spark, real brokers and stores where Java, Maven, Go and npm are'
	@echo 'make lint     ruff, cython-lint, mypy, stubtest'
	@echo 'make docs     the generated documents: docs/configuration.md, pictures, figures, dashboard; the site: build/site'
	@echo 'make dist     sdist and wheels in dist/, tried; PYTHONS="python3.12 …": for these interpreters'
	@echo 'make bench    figures beside those of others, in one run'
	@echo 'make soak     the long tests, below two hours on two cores: kills by the hundred, fuzzing under the sanitizers;'
	@echo '              PART=2/4: a part of it; SHARE=0.02: shorter tests'
	@echo 'make asan     the codec tests under the address and undefined-behaviour sanitizers'
	@echo 'make debug    compiled modules for a debugger, in place; `make build` goes back'
	@echo 'make proto    generated protobuf code'
	@echo 'make clean    away with everything made, but not $(VENV)'

$(MADE):
	@missing=$$(sh .ci/missing '$(PYTHON)') || exit 1; \
	if [ -n "$$missing" ]; then \
		echo "This machine lacks what the build needs. As root: apt-get install $$missing" >&2; exit 1; \
	fi
	'$(PYTHON)' -m venv $(VENV)
	$(PY) -m pip install -q --upgrade 'pip>=25.1'
	touch $@

# What compiles is installed first and used as it is (no build isolation), so that nothing is compiled twice.
$(INSTALLED): pyproject.toml setup.py | $(MADE)
	$(PY) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
		> $(VENV)/build-requires.txt
	$(PY) -m pip install -q -r $(VENV)/build-requires.txt
	$(IN_PLACE) '.[dev]'
	touch $@

$(BUILT): $(SOURCES) $(INSTALLED) $(if $(UNBUILT),force)
	@if [ -e $(VENV)/.debug ]; then find fastwire daemon -name '*.so' -delete; rm $(VENV)/.debug; fi
	$(PY) setup.py -q build_ext --inplace
	cd tests/toy && $(PY) setup.py -q build_ext --inplace egg_info
	touch $@

$(PROTOC): pyproject.toml | $(MADE)
	rm -rf build/protoc
	$(PY) -m pip install -q --no-deps --target build/protoc --group proto
	touch $@

$(DELTA): pyproject.toml | $(MADE)
	rm -rf build/delta
	$(PY) -m pip install -q --no-deps --target build/delta --group delta
	touch $@

# Spark is 400 MB, so it comes only with the verbs whose tests need it, and only where there is a Java to run it.
$(SPARK): $(INSTALLED)
	@if command -v java >/dev/null; then \
		echo 'pip install .[dev,spark] --group connect'; \
		$(IN_PLACE) '.[dev,spark]' --group connect; \
	else \
		echo 'no Java: the tests of Spark will be skipped'; \
	fi
	touch $@

# Who is measured beside us, and is no witness in tests.
$(PEERS): $(INSTALLED)
	$(IN_PLACE) '.[dev,bench]'
	touch $@

build: $(BUILT)

demo: $(BUILT)
	$(BIN)/fastwire-consume demo $(if $(BROKER),--broker $(BROKER))

# All of them, also after the first has failed. Beside them the tests are compiled, once and not by each worker.
lint: $(BUILT)
	@mkdir -p build/typing && ln -sfn ../../daemon build/typing/fastwire_daemon
	@$(PY) -m pytest --collect-only -q >/dev/null 2>&1 & \
	failed=; \
	run() { echo "$$@"; "$$@" || failed="$$failed $$(basename $$1)"; }; \
	run $(BIN)/ruff check --output-format concise .; \
	run $(BIN)/ruff format --check --output-format concise .; \
	PATH="$(BIN):$$PATH" run $(BIN)/cython-lint fastwire daemon tests/toy; \
	run $(BIN)/mypy; \
	$(if $(STUBBED_MODULES),run $(BIN)/stubtest --concise --ignore-disjoint-bases --mypy-config-file pyproject.toml \
		--allowlist tests/stubtest.allow --ignore-unused-allowlist $(STUBBED_MODULES);) \
	wait; \
	if [ -n "$$failed" ]; then echo "not clean:$$failed" >&2; exit 1; fi

docs: $(BUILT)
	$(PY) -m docs.configuration
	$(PY) -m docs.reasons
	$(PY) -m docs.architecture
	$(PY) -m docs.exactly_once
	$(PY) -m docs.dashboard
	$(PY) -m bench.readme
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

# Needs the package registry: build tools for each interpreter, and the dependencies of each trial.
dist: $(INSTALLED)
	$(PY) -m release.dist $(PYTHONS)

check: lint $(PROTOC) $(DELTA)
	$(PYTEST) -m unit

test: lint $(PROTOC) $(DELTA) $(SPARK)
	$(PYTEST) -m 'not soak and not bench'

# The fuzzers run in the build with the sanitizers, beside the tests that wait; what they find is written to the corpus
# here. One run, so that one summary at its end says what was done. PART=2/4 runs a quarter of it;
# `python -m tests.support.soaked` adds the parts up. SHARE=0.02 shortens each test, to see that it still runs.
soak: $(BUILT) $(SPARK) asan-build
	FASTWIRE_SOAK_PART='$(PART)' $(if $(SHARE),FASTWIRE_SOAK_SHARE='$(SHARE)') FASTWIRE_FUZZ_UNDER="$(IN_ASAN)" FASTWIRE_FUZZ_CORPUS='$(abspath tests/fuzz/corpus)' $(PYTEST) -m soak

bench: $(BUILT) $(SPARK) $(PEERS)
	$(PY) -m bench

# A copy of the tree, so that the modules in place stay what they are. The report of a sanitizer goes to the standard
# error of the process it ends: -s lets it through.
ASAN := build/asan
IN_ASAN = env -C $(ASAN) LD_PRELOAD=$$(gcc -print-file-name=libasan.so):$$(gcc -print-file-name=libubsan.so) \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc
ASAN_PYTEST := $(PY) -m pytest -s -p no:cacheprovider
asan: asan-build
	$(IN_ASAN) $(ASAN_PYTEST) --timeout 900 -m unit $(CODEC_TESTS)

asan-build: $(BUILT)
	mkdir -p $(ASAN)
	rm -rf $(foreach name,fastwire daemon conf tests bench proto,$(ASAN)/$(name))
	cp -a setup.py pyproject.toml README.md LICENSE fastwire daemon conf tests bench proto $(ASAN)
	ln -sfn daemon $(ASAN)/fastwire_daemon
	find $(ASAN)/fastwire $(ASAN)/daemon -name '*.so' -delete
	cd $(ASAN) && FASTWIRE_BUILD=asan $(PY) setup.py -q build_ext --inplace

debug: $(INSTALLED)
	find fastwire daemon -name '*.so' -delete
	touch $(VENV)/.debug
	rm -f $(BUILT)
	FASTWIRE_BUILD=debug $(PY) setup.py -q build_ext --inplace

# Of the types, a third of the lines are names that no code uses.
proto: $(PROTOC)
	PYTHONPATH=build/protoc $(PY) -m grpc_tools.protoc -I proto --python_out=. --pyi_out=. $(PROTOS:./%=%)
	sed -i -e '/_FIELD_NUMBER: /d' -e '/__slots__ = /d' $(PROTOS:./%.proto=%_pb2.pyi)

clean:
	rm -rf build dist demo-data *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis $(BUILT) $(VENV)/.debug
	find fastwire daemon conf tests bench -name __pycache__ -prune -exec rm -rf {} +
	find fastwire daemon -name '*.so' -delete

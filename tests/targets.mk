# What make does in a clone, besides what the Makefile has: tests and comparisons.

READS_test-upstream := MIRROR CUDA LIBFABRIC HWLOC ARGS
READS_molecule := SCENARIO
READS_bench := ARGS LIBTREE
READS_lock := RELEASE SITE ARGS $(READS_env)

.PHONY: quick dev test nightly test-upstream lint docs importer sanity units pytest molecule bench lock

quick: ## The shortest part of the tests: ruff, mypy and the unit tests, in one environment.
	tests/run $@

dev: ## Make .venv-dev, an environment in which pytest and molecule work as they are typed.
	tests/run $@

test: ## Everything that guards the collection.
	tests/run all

nightly: ## What make test leaves to the night: the oldest ansible-core.
	tests/run $@

test-upstream: ## What real programs and sources make of it; MIRROR names a directory of clones, TORCHSTACK_CONDA one with a real conda; TORCHSTACK_REHEARSE=polaris-real or derecho-real asks for that rehearsal.
	TORCHSTACK_UPSTREAM="$(abspath $(MIRROR))" TORCHSTACK_CUDA="$(CUDA)" TORCHSTACK_LIBFABRIC="$(LIBFABRIC)" TORCHSTACK_HWLOC="$(HWLOC)" \
	  tests/run pytest -rsP tests/upstream tests/rehearsal/test_rehearsal_real.py $(ARGS)

lint importer sanity units pytest: ## One part of the tests.
	tests/run $@

docs: ## Build the site of the documentation into .cache/site.
	tests/run $@

molecule: ## The scenario SCENARIO of molecule, or all of them.
	tests/run $@ $(SCENARIO)

bench: ## Compare the modules with other programs; prints a table of ratios.
	tests/run $@ $(ARGS)

lock: $(if $(RELEASE),env) ## Renew the locks of RELEASE of SITE by uv; without RELEASE, those in requirements/.
	$(if $(RELEASE),PATH="$(abspath $(VENV))/bin:$$PATH" bin/lock $(if $(findstring /,$(RELEASE)),$(RELEASE),inventories/$(or $(SITE),local)/releases/$(RELEASE).yml) $(ARGS),requirements/lock)


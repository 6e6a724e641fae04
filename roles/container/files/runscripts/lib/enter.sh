# shellcheck shell=bash
# For the scripts of a container stack: into the container, and there into the environment of its Python.

runscripts=$(dirname -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")")
installation=${runscripts%/*}
# shellcheck source=/dev/null
source "$runscripts/settings.sh" || exit

stop() {
  printf '%s: %s\n' "${0##*/}" "$1" >&2
  exit "${2:-1}"
}

# Run a script of this stack's, by its name: here, if this is the container, else there. It does not return.
run() {
  local name=$1 image options=("${TORCHSTACK_CONTAINER_OPTIONS[@]}")
  shift
  if [ -d /.singularity.d ]; then exec "$runscripts/$name" "$@"; fi
  choose_image
  join_binds
  case ,${SINGULARITY_BIND:-},${SINGULARITY_BINDPATH:-},${APPTAINER_BINDPATH:-}, in
    *:/runscripts,* | *:/runscripts:*) ;;
    *) options+=(--bind "$runscripts:/runscripts") ;;
  esac
  command -v "$TORCHSTACK_CONTAINER_COMMAND" > /dev/null ||
    stop "there is no $TORCHSTACK_CONTAINER_COMMAND on PATH on ${HOSTNAME:-this machine}." 127
  exec "$TORCHSTACK_CONTAINER_COMMAND" exec "${options[@]}" "$image" "/runscripts/$name" "$@"
}

# A script of this stack's begins with its own name and arguments: outside of the container it goes on inside.
begin() {
  [ -d /.singularity.d ] || run "$@"
}

# The image that the loaded module names, if that is this release's; without it, what its module would choose and set.
choose_image() {
  local root=EBROOT$TORCHSTACK_IMAGE_NAME own=SIF$TORCHSTACK_IMAGE_NAME place
  if [ "${CONTAINERROOT:-}" -ef "$installation" ]; then
    image=${SIF:-}
  elif [ "${!root:-}" -ef "$installation" ]; then
    image=${!own:-}
  else
    for place in "${TORCHSTACK_IMAGES[@]}"; do
      if [ -f "$place" ]; then image=$place; break; fi
    done
    [ -n "$image" ] || stop "the image is in none of its places: ${TORCHSTACK_IMAGES[*]}."
    set_without_module
  fi
  [ -e "$image" ] || stop "there is no image ${image:-in SIF}: load the module again."
}

# Bind and search as the module does, besides what somebody has bound to other places.
set_without_module() {
  local binds=$TORCHSTACK_BINDS word words path=/runscripts
  binds=${binds:+$binds,}$runscripts:/runscripts
  if [ -e "$installation/user-software.squashfs" ]; then
    binds+=,$installation/user-software.squashfs:/user-software:image-src=/
  elif [ -d "$installation/user-software" ]; then
    binds+=,$installation/user-software:/user-software
  fi
  IFS=, read -r -a words <<< "${SINGULARITY_BIND:-}"
  for word in "${words[@]}"; do
    case $word in
      *:/runscripts | *:/runscripts:* | *:/user-software | *:/user-software:*) ;;
      *) [[ ,$binds, = *,"$word",* ]] || binds+=,$word ;;
    esac
  done
  if [ -n "$TORCHSTACK_VENV" ]; then path+=:/user-software/venv/$TORCHSTACK_VENV/bin; fi
  export SINGULARITY_BIND=$binds SINGULARITYENV_PREPEND_PATH=$path
}

# Where APPTAINER_BIND is set, Apptainer passes over SINGULARITY_BIND: here both count.
join_binds() {
  local word words
  [ -n "${APPTAINER_BIND:-}" ] || return 0
  IFS=, read -r -a words <<< "$APPTAINER_BIND"
  for word in "${words[@]}"; do
    [[ ,${SINGULARITY_BIND:-}, = *,"$word",* ]] || SINGULARITY_BIND+=${SINGULARITY_BIND:+,}$word
  done
  export SINGULARITY_BIND
  unset APPTAINER_BIND
}

# In the container: into the image's environment, and into the virtual environment on top of it. Sets `python`.
activate() {
  local venv=/user-software/venv/$TORCHSTACK_VENV
  if [ -n "${WITH_CONDA:-}" ]; then
    eval "$WITH_CONDA" || stop "the image's WITH_CONDA failed: $WITH_CONDA"
  fi
  if [ -n "$TORCHSTACK_VENV" ] && [ -x "$venv/bin/python" ]; then
    export VIRTUAL_ENV=$venv PATH=$venv/bin:$PATH
  fi
  # shellcheck disable=SC2034 # for the scripts
  python=$(type -P python || type -P python3) || stop "there is no Python in the image."
}

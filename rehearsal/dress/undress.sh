#!/bin/sh
# Take the dress off this node: all that was laid, and the directories above it that are empty then.
set -eu
if [ -e /etc/rehearsal-dress.laid ]; then
  mv /etc/rehearsal-dress.laid /tmp/laid
  while read -r path; do
    rm -rf "$path"
    rmdir --parents --ignore-fail-on-non-empty "${path%/*}" 2> /dev/null || true
  done < /tmp/laid
fi
rm -f /tmp/laid /etc/rehearsal-dress
if [ -e /etc/lmod/modulespath.undressed ]; then mv /etc/lmod/modulespath.undressed /etc/lmod/modulespath; fi
ldconfig

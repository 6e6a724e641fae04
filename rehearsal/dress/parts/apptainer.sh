#!/bin/sh
# Apptainer from the distribution's development release, also as singularity, on the PATH.
if [ ! -e /dev/fuse ]; then
  echo "This machine has no /dev/fuse, through which accounts mount images: modprobe fuse, make rehearse-down, and again." >&2
  exit 1
fi
apt-get -qq update
bash "$REHEARSAL/install-apptainer" "$PLACE"
mkdir -p /usr/local/bin
ln -sf "$PLACE/bin/apptainer" "$PLACE/bin/singularity" /usr/local/bin
printf '%s\n' /usr/local/bin/apptainer /usr/local/bin/singularity >> "$LAID"

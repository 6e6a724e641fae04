#!/bin/sh
# Upstream makes configure by autoreconf; a stand-in has it written.
set -eu
cd "$(dirname "$0")"
sed 's/@VERSION@/1.6.0/' configure.in.sh > configure
chmod 755 configure

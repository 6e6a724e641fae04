#!/bin/sh
# A toolkit without a device.
make --silent -C "$REHEARSAL/sources/cuda" install PREFIX="$PLACE" VERSION="$VERSION"

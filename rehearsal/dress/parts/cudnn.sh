#!/bin/sh
# Headers with a small library, which computes nothing.
define=$(echo "$VERSION" | {
  IFS=.- read -r major minor patch _rest
  printf '#define CUDNN_%s\n' "MAJOR $major" "MINOR $minor" "PATCHLEVEL $patch"
})
sh ./stand-in-library "$PLACE" cudnn cudnnGetVersion cudnn.h "$define"

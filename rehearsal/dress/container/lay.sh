#!/bin/sh
# Lay the parts of a site with containers: lay.sh PARTS REHEARSAL WHEELS KEPT, with a file of a part, its version and its
# place on each line, the directory of the rehearsal's programs, the one that has the wheels of the image, and one that all
# nodes see, where the image is kept. Runs as root, in the directory that it lies in.
set -eu
umask 022
parts=$1 rehearsal=$2 wheels=$3 kept=$4

apptainer() { # PREFIX
  if [ ! -e /dev/fuse ]; then
    echo "This machine has no /dev/fuse, through which accounts mount images: modprobe fuse, make rehearse-down, and again." >&2
    exit 1
  fi
  apt-get -qq update
  bash "$rehearsal/install-apptainer" "$1"
  mkdir -p /usr/local/bin
  ln -sf "$1/bin/apptainer" "$1/bin/singularity" /usr/local/bin
}

# A small system with PyTorch, as sites have theirs in a central place: with checksums, and the definition beside the image.
# An image that is there already is taken again, as a release of it is frozen with its checksum.
image() { # NAME PLACE
  images=$kept/images-$(cat -- * "$rehearsal/image_root.py" | sha256sum | cut -c 1-12)
  if [ ! -e "$images/SHA256SUMS" ]; then make_image "$1"; fi
  mkdir -p "${2%/*}"
  ln -s "$images" "$2"
}

make_image() { # NAME
  rm -rf "$kept"/images-*
  mkdir "$images"
  root=$images/root
  PYTHONPATH=${rehearsal%/*} python3 -B -c 'import pathlib, sys
from rehearsal.image_root import PACKAGES, fill, texts
fill(pathlib.Path(sys.argv[1]), texts())
print(PACKAGES)' "$root" > "$images/packages"
  packages=$root/$(cat "$images/packages")
  for wheel in "$wheels"/*.whl; do python3 -m zipfile -e "$wheel" "$packages"; done
  ldd "$packages"/torch/lib/*.so "$packages"/numpy/_core/*.so | sed -nE 's#.*=> (/[^ ]*) .*#\1#p' | sort -u > "$images/libraries"
  # Of the libraries that a CUDA build comes with, those that it is linked with: no container has a GPU.
  if [ -e "$packages/nvidia" ]; then
    xargs realpath < "$images/libraries" > "$images/linked"
    find "$packages/nvidia" -type f | grep -vxFf "$images/linked" | tr '\n' '\0' | xargs -0 rm
  fi
  grep '^/lib/' "$images/libraries" | while read -r library; do
    mkdir -p "$root/usr${library%/*}"
    cp "$library" "$root/usr$library"
  done
  # Leaves the bytecode of what is imported, as packages of conda have it.
  PYTHONPATH=$packages python3 -c 'import torch.distributed'
  # Only for compiling against PyTorch, and for its own tests.
  rm -rf "$packages/torch/include" "$packages/torch/test"
  chown -R rollout "$images"
  runuser -u rollout -- env TMPDIR="$images" apptainer build --mksquashfs-args "-comp zstd -Xcompression-level 3" \
    "$images/$1.sif" "$root"
  rm -rf "$root" "$images/packages" "$images/libraries" "$images/linked"
  cp definition.docker "$images/$1.docker"
  chown -R root:root "$images"
  chmod 644 "$images"/*
  (cd "$images" && sha256sum "$1.sif" > SHA256SUMS.new && mv SHA256SUMS.new SHA256SUMS)
}

while read -r part version place; do
  case $part in
    apptainer) apptainer "$place" ;;
    image) image "$version" "$place" ;;
    directory) mkdir -p "$place" ;;
    library) gcc -shared -o "$place" -x c /dev/null ;;
    *) echo "There is no part $part." >&2; exit 1 ;;
  esac
done < "$parts"

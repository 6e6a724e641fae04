#!/bin/sh
# A small system with PyTorch, as sites have theirs in a central place: with checksums, and the definition beside the image;
# VERSION is its name. One that is there already is taken again, as a release of it is frozen with its checksum.
# Wheels: image/packages.txt image/torch.txt
images=$KEPT/images-$(cat image.sh image/* "$REHEARSAL/image_root.py" | sha256sum | cut -c 1-12)

make_image() { # NAME
  rm -rf "$KEPT"/images-*
  mkdir "$images"
  root=$images/root
  PYTHONPATH=${REHEARSAL%/*} python3 -B -c 'import pathlib, sys
from rehearsal.image_root import PACKAGES, fill, texts
fill(pathlib.Path(sys.argv[1]), texts())
print(PACKAGES)' "$root" > "$images/packages"
  packages=$root/$(cat "$images/packages")
  for wheel in "$WHEELS"/*.whl; do python3 -m zipfile -e "$wheel" "$packages"; done
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
  cp image/definition.docker "$images/$1.docker"
  chown -R root:root "$images"
  chmod 644 "$images"/*
  (cd "$images" && sha256sum "$1.sif" > SHA256SUMS.new && mv SHA256SUMS.new SHA256SUMS)
}

if [ ! -e "$images/SHA256SUMS" ]; then make_image "$VERSION"; fi
mkdir -p "${PLACE%/*}"
ln -s "$images" "$PLACE"

#!/bin/sh
# NVIDIA's toolkit as its wheels have it: nvcc, the headers and the run-time library, laid as in a toolkit. Nothing of the driver.
# Wheels: cuda-wheels.txt
mkdir -p "$PLACE"
for wheel in "$WHEELS"/*.whl; do python3 -m zipfile -e "$wheel" wheel; done
cp -R wheel/nvidia/cu*/. "$PLACE"
rm -r wheel
chmod 755 "$PLACE"/bin/* "$PLACE"/nvvm/bin/*
ln -s lib "$PLACE/lib64"
# Wheels have no links, so the name that a linker looks for is missing.
for library in "$PLACE"/lib/*.so.*; do ln -s "${library##*/}" "${library%.so.*}.so"; done
"$PLACE/bin/nvcc" --version | grep -q "release ${VERSION%.*}," || { echo "The wheels are not those of CUDA $VERSION." >&2; exit 1; }

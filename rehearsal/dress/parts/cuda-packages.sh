#!/bin/sh
# NVIDIA's toolkit of a version whose wheels have no nvcc: that from the distribution's package, which has one version, and the headers,
# ptxas and the run-time library from the wheels; laid as in a toolkit. Nothing of the driver, and no static library.
# Wheels: cuda-packages.txt
mkdir -p "$PLACE" packages/lists/partial
for wheel in "$WHEELS"/*.whl; do python3 -m zipfile -e "$wheel" wheel; done
for part in wheel/nvidia/cuda_*; do cp -R "$part/." "$PLACE"; done
(
  cd packages || exit
  # It is in a component that the nodes have not in their list.
  sed -n 's/^\(deb .*\) main\b.*/\1 non-free/p' /etc/apt/sources.list > sources.list
  set -- -qq -o "Dir::Etc::SourceList=$PWD/sources.list" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$PWD/lists" -o APT::Sandbox::User=root
  apt-get "$@" update
  apt-get "$@" download nvidia-cuda-toolkit
  dpkg-deb --extract nvidia-cuda-toolkit_*.deb root
  mkdir -p "$PLACE/nvvm/bin"
  mv root/usr/lib/nvidia-cuda-toolkit/bin/cicc "$PLACE/nvvm/bin"
  mv root/usr/lib/nvidia-cuda-toolkit/bin/nvcc root/usr/lib/nvidia-cuda-toolkit/bin/crt root/usr/bin/cudafe++ root/usr/bin/fatbinary \
    root/usr/bin/nvlink root/usr/bin/bin2c "$PLACE/bin"
)
rm -r wheel packages
chmod 755 "$PLACE"/bin/* "$PLACE"/nvvm/bin/*
ln -s lib "$PLACE/lib64"
for library in "$PLACE"/lib/*.so.*; do ln -s "${library##*/}" "${library%%.so.*}.so"; done
# As NVIDIA's own: the package's names the places of the distribution.
cat > "$PLACE/bin/nvcc.profile" << 'END'
TOP = $(_HERE_)/..
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH += $(TOP)/nvvm/bin:$(_HERE_):
INCLUDES += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES =+ $(_SPACE_) "-L$(TOP)/lib64"
END
"$PLACE/bin/nvcc" --version | grep -q "release ${VERSION%.*}," || { echo "The distribution's package is not CUDA $VERSION." >&2; exit 1; }
# What is linked with the run-time library, as there is no static one, finds it under any LD_LIBRARY_PATH.
echo "$PLACE/lib64" >> "$LOADER"

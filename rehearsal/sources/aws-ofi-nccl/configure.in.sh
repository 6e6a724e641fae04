#!/bin/sh
# A stand-in for the plugin's configure: options, checks and messages of upstream's that matter to whoever builds it.
set -eu
version=@VERSION@
prefix=/usr/local
libdir=
libfabric=
cuda=
tests=yes
fail() {
  echo "configure: error: $1" >&2
  exit 1
}
for word in "$@"; do
  case $word in
    --prefix=*) prefix=${word#*=} ;;
    --libdir=*) libdir=${word#*=} ;;
    --with-libfabric=*) libfabric=${word#*=} ;;
    --with-cuda=*) cuda=${word#*=} ;;
    --disable-tests) tests=no ;;
    --enable-trace | --disable-picky-compiler) ;;
    LDFLAGS=*) LDFLAGS=${word#*=} ;;
    --*) echo "configure: WARNING: unrecognized options: ${word%%=*}" >&2 ;;
    *) fail "unrecognized option: $word" ;;
  esac
done
# As upstream's: tests are built unless they are turned off, and then they want an MPI.
if [ $tests = yes ]; then
  "${MPICC:-mpicc}" -show > /dev/null 2>&1 || fail "no MPI compiler was found, and tests are enabled"
fi
for directory in lib64 lib; do
  if [ -d "$libfabric/$directory" ]; then fabric_lib=$libfabric/$directory; break; fi
done
for directory in lib64 lib; do
  if [ -d "$cuda/$directory" ]; then cuda_lib=$cuda/$directory; break; fi
done
[ -f "$libfabric/include/rdma/fabric.h" ] || fail "could not find the header file rdma/fabric.h"
[ -f "$cuda/include/cuda_runtime.h" ] || fail "could not find the header file cuda_runtime.h"
# Whatever the documentation says, it is content with 1.11.
cat > conftest.c <<'C'
#include <rdma/fabric.h>
#if FI_MAJOR_VERSION < 1 || (FI_MAJOR_VERSION == 1 && FI_MINOR_VERSION < 11)
#error too old
#endif
int main(void) { return 0; }
C
"${CC:-cc}" -I"$libfabric/include" -c -o conftest.o conftest.c || fail "libfabric 1.11.0 or newer is needed"
rm -f conftest.c conftest.o
cat > Makefile <<MAKE
all: libnccl-net.so

libnccl-net.so: src/nccl_ofi_net.c include/nccl_net.h
	${CC:-cc} ${CFLAGS:--O1} -fPIC -shared -DPACKAGE_VERSION='"$version"' -Iinclude -I$libfabric/include -I$cuda/include \\
	  -Wl,-soname,libnccl-net.so.0 -o \$@ src/nccl_ofi_net.c $(printf '%s' "${LDFLAGS:-}" | sed 's/\$/$$/g') -L$fabric_lib -lfabric -L$cuda_lib -lcudart

install: all
	mkdir -p ${libdir:-$prefix/lib}
	install libnccl-net.so ${libdir:-$prefix/lib}/libnccl-net.so.0.0.0
	ln -sf libnccl-net.so.0.0.0 ${libdir:-$prefix/lib}/libnccl-net.so.0
	ln -sf libnccl-net.so.0.0.0 ${libdir:-$prefix/lib}/libnccl-net.so
	echo "# libtool's description" > ${libdir:-$prefix/lib}/libnccl-net.la

.PHONY: all install
MAKE
echo "configure: creating Makefile"

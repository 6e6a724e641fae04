#!/bin/sh
# Lay the parts of a Cray: lay.sh PARTS REHEARSAL WHEELS, with a file of a part, its version and its place on each line,
# the directory that has the sources of stand-ins, and the one that has the wheel of the MPI. Runs as root, in the directory
# that it lies in.
set -eu
umask 022
parts=$1 sources=$2/sources wheel=$(echo "$3"/mpich-*.whl)

compilers() { # PREFIX
  prefix=$1
  mkdir -p "$prefix/bin" "$prefix/snos/bin"
  install programs/redirect "$prefix/bin/redirect"
  for name in gcc g++ cpp c++; do
    ln -sf redirect "$prefix/bin/$name"
    printf '#!/bin/sh\nexec /usr/bin/%s "$@"\n' $name > "$prefix/snos/bin/$name"
    chmod 755 "$prefix/snos/bin/$name"
  done
}

wrappers() { # DIRECTORY PROGRAM NAME...
  directory=$1 program=$2
  shift 2
  mkdir -p "$directory"
  for name in "$@"; do install "programs/$program" "$directory/$name"; done
}

# MPICH itself, with what Cray's has besides. The loader finds its libraries by the machine's settings, where they lie, as
# MPICH's own parts are found beside it.
mpi() { # PREFIX VERSION
  top=$1
  prefix=$top/ofi/gnu/12.2
  mkdir -p "$prefix/bin" "$top/gtl/lib" /opt/cray/pals/bin
  python3 -m zipfile -e "$wheel" wheel
  cp -R wheel/mpich-*.data/data/include wheel/mpich-*.data/data/lib "$prefix"
  # Its libfabric has a name of its own, as a process may have the stand-in as well, which MPI could not work over.
  find "$prefix/lib" -type f -exec env LC_ALL=C sed -i 's/libfabric[.]so[.]1/libmpifab.so.1/g' {} +
  mv "$prefix/lib/mpich/libfabric.so.1" "$prefix/lib/mpich/libmpifab.so.1"
  rm -r wheel
  printf '#define CRAY_MPICH_VERSION %s\n' "$2" >> "$prefix/include/mpi.h"
  gcc -O1 -shared -fPIC -I"$prefix/include" -Wl,-soname,libmpi_cray.so.0 -o "$prefix/lib/libmpi_cray.so.0" \
    libraries/mpi_cray.c -L"$prefix/lib" -lmpi
  gcc -O1 -shared -fPIC -Wl,-soname,libmpi_gtl_cuda.so.0 -o "$top/gtl/lib/libmpi_gtl_cuda.so.0" libraries/mpi_gtl_cuda.c
  ln -sf libmpi_cray.so.0 "$prefix/lib/libmpi_cray.so"
  ln -sf ../../../../gtl/lib/libmpi_gtl_cuda.so.0 "$prefix/lib/libmpi_gtl_cuda.so"
  wrappers "$prefix/bin" wrapper mpicc mpicxx mpic++
  install programs/mpiexec /opt/cray/pals/bin/mpiexec
  printf '%s/lib\n' "$prefix" "$top/gtl" >> /etc/ld.so.conf.d/rehearsal-dress.conf
}

cudnn_version() { # VERSION
  echo "$1" | {
    IFS=.- read -r major minor patch _rest
    printf '#define CUDNN_%s\n' "MAJOR $major" "MINOR $minor" "PATCHLEVEL $patch"
  }
}

library() { # PREFIX NAME FUNCTION HEADER TEXT
  mkdir -p "$1/include" "$1/lib"
  printf '%s\nint %s(void);\n' "$5" "$3" > "$1/include/$4"
  printf 'int %s(void)\n{\n    return 0;\n}\n' "$3" > "$2.c"
  gcc -O1 -fPIC -c -o "$2.o" "$2.c"
  gcc -shared -Wl,-soname,"lib$2.so" -o "$1/lib/lib$2.so" "$2.o"
  ar rcs "$1/lib/lib$2.a" "$2.o"
}

while read -r part version place; do
  case $part in
    gcc) compilers "$place" ;;
    craype) wrappers "$place/bin" wrapper cc CC ;;
    mpich) mpi "$place" "$version" ;;
    libfabric | cuda) make --silent -C "$sources/$part" install PREFIX="$place" VERSION="$version" ;;
    ncarcompilers) wrappers "$place/bin" ncar-wrapper gcc g++ mpicc mpicxx ;;
    cudnn) library "$place" cudnn cudnnGetVersion cudnn.h "$(cudnn_version "$version")" ;;
    mkl) library "$place" mkl_rt mkl_get_max_threads mkl.h "#define INTEL_MKL_VERSION ${version%%.*}0000" ;;
    *) echo "There is no part $part." >&2; exit 1 ;;
  esac
done < "$parts"

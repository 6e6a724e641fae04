#!/bin/sh
# Parallel HDF5 of the distribution's source package, compiled with the wrappers of a dress; SETS has where they are and where
# their MPI is. The library and its high-level one, without programs. It takes minutes, so one that was made is taken again.
# shellcheck source-path=SCRIPTDIR
. ../kept.sh
{ read -r wrappers; read -r mpi; } << END
$SETS
END

make_hdf5() (
  mkdir hdf5
  cd hdf5 || exit
  # A list of apt's own lists, with the sources of the same archive.
  sed -n 's/^deb /deb-src /p' /etc/apt/sources.list > sources.list
  mkdir -p lists/partial
  set -- -qq -o "Dir::Etc::SourceList=$PWD/sources.list" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$PWD/lists" -o APT::Sandbox::User=root
  apt-get "$@" update
  apt-get "$@" source --download-only hdf5
  tar -xf hdf5_"$VERSION"*.orig.tar.* --strip-components=1
  export CRAY_MPICH_DIR="$mpi" PATH="$wrappers/bin:$PATH" LD_LIBRARY_PATH="$mpi/lib"
  ./configure --quiet --prefix="$PLACE" CC=cc CFLAGS=-O1 --enable-parallel --disable-static --disable-fortran \
    --disable-tests --disable-tools --disable-hltools --without-zlib --disable-dependency-tracking
  for part in src hl/src; do make --silent -j "$(nproc)" -C $part install > make.log 2>&1 || { tail make.log >&2; exit 1; }; done
  rm -f "$PLACE"/lib/*.la
)

kept hdf5 make_hdf5
echo "$PLACE/lib" >> "$LOADER"

#!/bin/sh
# libfabric from its repository; SETS has the address and the commit of VERSION. Of its providers those for TCP and for memory that
# processes share, as no node has another network. It takes minutes, so one that was made is taken again.
# shellcheck source-path=SCRIPTDIR
. ../kept.sh
{ read -r repository; read -r commit; } << END
$SETS
END

make_libfabric() (
  git init --quiet libfabric
  cd libfabric || exit
  git fetch --quiet --depth 1 "$repository" "$commit" || exit
  git checkout --quiet FETCH_HEAD
  {
    ./autogen.sh &&
      ./configure --quiet --prefix="$PLACE" --libdir="$PLACE/lib64" --disable-static --enable-only --enable-tcp --enable-shm CFLAGS=-O1 &&
      make --silent -j "$(nproc)" install
  } > make.log 2>&1 || { tail make.log >&2; exit 1; }
  rm -f "$PLACE"/lib64/*.la
  "$PLACE/bin/fi_info" --version | grep -qx "libfabric: $VERSION" || { echo "Commit $commit is not libfabric $VERSION." >&2; exit 1; }
)

kept libfabric-source make_libfabric

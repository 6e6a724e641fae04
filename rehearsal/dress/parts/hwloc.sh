#!/bin/sh
# hwloc, headers and library, of the distribution's packages; of the version that those have.
mkdir -p hwloc/lists/partial "$PLACE"
(
  cd hwloc || exit
  set -- -qq -o "Dir::State::Lists=$PWD/lists" -o APT::Sandbox::User=root
  apt-get "$@" update
  apt-get "$@" download libhwloc15 libhwloc-dev
  for package in *.deb; do dpkg-deb --extract "$package" root; done
  # One of its headers lies below the architecture's name, where only the distribution's compiler looks.
  mv root/usr/include/*-linux-gnu/hwloc/autogen root/usr/include/hwloc
  cp -R root/usr/include "$PLACE"
  cp -R root/usr/lib/*-linux-gnu "$PLACE/lib"
)
rm -r hwloc

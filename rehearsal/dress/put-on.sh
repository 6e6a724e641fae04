#!/bin/sh
# Put a dress on this node: put-on.sh ARCHIVE NAME, with what it lays, and its name as the last.
set -eu
tar -xf "$1" -C /
mv /etc/lmod/modulespath.dressed /etc/lmod/modulespath.new
cp /etc/lmod/modulespath /etc/lmod/modulespath.undressed
mv /etc/lmod/modulespath.new /etc/lmod/modulespath
ldconfig
echo "$2" > /etc/rehearsal-dress

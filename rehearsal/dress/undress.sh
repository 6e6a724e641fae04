#!/bin/sh
# Take the dress off this node: what a dress may lay is below these directories.
set -eu
rm -rf /appl /opt/apptainer /opt/cirrus /opt/cray /opt/ncar /opt/nvidia /soft /work/y07
rm -f /usr/local/bin/apptainer /usr/local/bin/singularity
rm -rf /usr/lib64/lib* /etc/ld.so.conf.d/rehearsal-dress.conf /etc/rehearsal-dress
if [ -e /etc/lmod/modulespath.undressed ]; then mv /etc/lmod/modulespath.undressed /etc/lmod/modulespath; fi
ldconfig

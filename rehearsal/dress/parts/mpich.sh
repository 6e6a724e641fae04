#!/bin/sh
# MPICH from its wheel, whose ranks `srun --mpi=pmi2` starts.
# Wheels: mpich.txt
mkdir -p "$PLACE"
python3 -m zipfile -e "$WHEELS"/mpich-*.whl wheel
cp -R wheel/mpich-*.data/data/. "$PLACE"
rm -r wheel
chmod 755 "$PLACE"/bin/*

#!/bin/sh
# Make a node of PBS of the system that ../finish.sh has made. Runs as root in the image to be.
set -eu
chmod 755 /usr/local/sbin/rehearsal-*
# PBS has a database of its own, and runs it itself.
systemctl mask postgresql.service
pg_dropcluster "$(ls /usr/lib/postgresql)" main
systemctl enable rehearsal-pbs

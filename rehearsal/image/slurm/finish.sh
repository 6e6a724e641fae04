#!/bin/sh
# Make a node of Slurm of the system that ../finish.sh has made. Runs as root in the image to be.
set -eu
chmod 755 /usr/local/sbin/rehearsal-*
chown slurm:slurm /etc/slurm/slurmdbd.conf
chmod 600 /etc/slurm/slurmdbd.conf
install -d -o slurm -g slurm /var/log/slurm /var/spool/slurmctld
install -d /var/spool/slurmd
systemctl enable rehearsal-database rehearsal-accounts mariadb slurmdbd slurmctld slurmd munge

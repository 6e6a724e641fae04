#!/bin/sh
# Turn an unpacked system into a node, but for its batch system: accounts, modules. Runs as root in the image to be.
set -eu

# The same numbers everywhere, as directory services give them; homes are on the shared file system.
groupadd --gid 2001 rollout
groupadd --gid 2002 researcher
useradd --uid 2001 --gid 2001 --no-create-home --home-dir /shared/home/rollout --shell /bin/bash rollout
useradd --uid 2002 --gid 2002 --no-create-home --home-dir /shared/home/researcher --shell /bin/bash researcher
mkdir -p /shared

# A checkout's umask does not reach the image.
chmod 755 /usr/local/bin/rehearsal-*
chmod 440 /etc/sudoers.d/rehearsal

# The package of Environment Modules excludes Lmod's; both can be used side by side.
cd /tmp
apt-get download -qq environment-modules
dpkg -x environment-modules_*.deb /opt/environment-modules
rm environment-modules_*.deb
for command in /opt/environment-modules/usr/lib/*/modulecmd.tcl; do ln -s "$command" "${command#/opt/environment-modules}"; done
apt-get clean

# Nothing here has a console, renews packages, or checks disks.
systemctl mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
  fstrim.timer getty.target systemd-logind.service
rm -f /etc/machine-id /etc/hostname
: > /etc/machine-id

#!/bin/sh
# Lay a dress on this node, and archive it: lay.sh WORK ARCHIVE RELEASES KEPT. Runs as root.
#
# WORK has the checkout's files that parts are made with (rehearsal/), the wheels of each part (wheels/PART), the modulefiles
# (files/, as below the root), and lists of lines: `parts` (name, version, place, number), sets/NUMBER with what a part is
# told besides, `trees` of modules, and `laid`, what belongs to the dress.
set -eu
umask 022
work=$1 archive=$2 releases=$3
export KEPT="$4" REHEARSAL="$work/rehearsal" LAID="$work/laid" LOADER=/etc/ld.so.conf.d/rehearsal-dress.conf

rm -rf "${archive%/*}"
mkdir -p "${archive%/*}" "$KEPT"
# Whatever comes of it, undress.sh finds it.
cp "$LAID" /etc/rehearsal-dress.laid
cp -R "$work/files/." /
cd "$work/rehearsal/dress/parts"
while read -r part version place number; do
  PLACE=$place VERSION=$version WHEELS=$work/wheels/$part SETS=$(cat "$work/sets/$number") sh -eu "./$part.sh" < /dev/null
  cp "$LAID" /etc/rehearsal-dress.laid
done < "$work/parts"

# The site's modules take the place of the distribution's.
paths=/etc/lmod/modulespath
{ cat "$work/trees"; grep -v '^/etc/lmod/modules$' $paths; echo "$releases/modulefiles/lmod"; } > $paths.dressed
install -d -o rollout -g rollout "$releases"
printf '%s\n' "$LOADER" $paths.dressed /etc/rehearsal-dress.laid >> "$LAID"
touch "$LOADER"
cp "$LAID" /etc/rehearsal-dress.laid
sort -u "$LAID" | while read -r path; do if [ -e "$path" ]; then echo "${path#/}"; fi; done | tar -cf "$archive.new" -C / --files-from=-
mv "$archive.new" "$archive"
rm -rf "$work"

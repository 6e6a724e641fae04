# shellcheck shell=sh
# For parts that take minutes, to be sourced: kept PART COMMAND. What COMMAND has laid at PLACE is kept, and taken again by the next
# dress that asks the same of the same program.
kept() {
  archive=$KEPT/$1-$VERSION-$(echo "$VERSION $PLACE $SETS" | cat - "$1.sh" | sha256sum | cut -c 1-12).tar
  if [ -e "$archive" ]; then
    tar -xf "$archive" -C /
    return
  fi
  $2
  rm -f "$KEPT/$1-$VERSION"-*.tar
  tar -cf "$archive.new" -C / "${PLACE#/}"
  mv "$archive.new" "$archive"
}

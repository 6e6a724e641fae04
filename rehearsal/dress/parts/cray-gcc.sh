#!/bin/sh
# The nodes' own compilers behind links to a program that finds them by the name that it is called by.
mkdir -p "$PLACE/bin" "$PLACE/snos/bin"
install cray/redirect "$PLACE/bin/redirect"
for name in gcc g++ cpp c++; do
  ln -sf redirect "$PLACE/bin/$name"
  printf '#!/bin/sh\nexec /usr/bin/%s "$@"\n' $name > "$PLACE/snos/bin/$name"
  chmod 755 "$PLACE/snos/bin/$name"
done

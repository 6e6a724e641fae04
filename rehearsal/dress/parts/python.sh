#!/bin/sh
# The nodes' own Python, at the place of the site's.
mkdir -p "$PLACE/bin"
for name in python python3; do
  printf '#!/bin/sh\nexec /usr/bin/python3 "$@"\n' > "$PLACE/bin/$name"
  chmod 755 "$PLACE/bin/$name"
done

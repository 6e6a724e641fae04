# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write what a package says of its licence as SPDX spells it (SPDX 2.3, annex D and section 10). Pure."""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

IDENTIFIERS = frozenset((
    "0BSD", "AFL-2.1", "AGPL-3.0-only", "AGPL-3.0-or-later", "Apache-1.1", "Apache-2.0", "Artistic-1.0",
    "Artistic-2.0", "BlueOak-1.0.0", "BSD-1-Clause", "BSD-2-Clause", "BSD-2-Clause-Patent", "BSD-3-Clause",
    "BSD-3-Clause-LBNL", "BSD-4-Clause", "BSL-1.0", "bzip2-1.0.6", "CC-BY-3.0", "CC-BY-4.0", "CC-BY-SA-4.0",
    "CC0-1.0", "CDDL-1.0", "CDDL-1.1", "CECILL-2.1", "CNRI-Python", "curl", "ECL-2.0", "EPL-1.0", "EPL-2.0",
    "EUPL-1.2", "FSFAP", "FTL", "GFDL-1.3-only", "GFDL-1.3-or-later", "GPL-1.0-or-later", "GPL-2.0-only",
    "GPL-2.0-or-later", "GPL-3.0-only", "GPL-3.0-or-later", "HPND", "ICU", "IJG", "Intel", "ISC", "JSON",
    "LGPL-2.0-only", "LGPL-2.0-or-later", "LGPL-2.1-only", "LGPL-2.1-or-later", "LGPL-3.0-only",
    "LGPL-3.0-or-later", "Libpng", "libpng-2.0", "libtiff", "LPPL-1.3c", "MIT", "MIT-0", "MIT-CMU",
    "MIT-Modern-Variant", "MPL-1.1", "MPL-2.0", "MS-PL", "NCSA", "NIST-PD", "NTP", "OFL-1.1", "OLDAP-2.8",
    "OpenSSL", "PostgreSQL", "PSF-2.0", "Python-2.0", "Python-2.0.1", "Ruby", "SGI-B-2.0", "Sleepycat", "SSPL-1.0",
    "TCL", "Unicode-3.0", "Unicode-DFS-2016", "Unlicense", "UPL-1.0", "Vim", "W3C", "WTFPL", "X11", "Zlib",
    "ZPL-2.0", "ZPL-2.1"))
"""Identifiers of the SPDX list that packages of these stacks use; another one is quoted, which is right as well."""

EXCEPTIONS = frozenset(
    ("Autoconf-exception-2.0", "Autoconf-exception-3.0", "Bison-exception-2.2", "Classpath-exception-2.0",
     "GCC-exception-3.1", "LLVM-exception", "Libtool-exception", "Linux-syscall-note", "OCaml-LGPL-linking-exception"))

ALIASES = {
    "apache 2.0": "Apache-2.0", "apache license 2.0": "Apache-2.0", "apache license, version 2.0": "Apache-2.0",
    "apache-2": "Apache-2.0", "apache software license": "Apache-2.0", "the mit license": "MIT", "mit license": "MIT",
    "3-clause bsd": "BSD-3-Clause", "bsd 3-clause": "BSD-3-Clause", "new bsd": "BSD-3-Clause",
    "bsd 2-clause": "BSD-2-Clause", "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "isc license (iscl)": "ISC",
}
"""Names that mean one identifier beyond doubt. "BSD" and "GPL" alone do not."""

_WORDS = re.compile(r"\(|\)|[^\s()]+")


class Licence(NamedTuple):
    """Hold a licence for a document: the expression, and the text of what is quoted under an own name."""

    expression: str
    quoted: dict[str, str]


def licence(said: str) -> Licence:
    """Write what a package says of its licence as SPDX has it, quoted unless its identifiers are known."""
    said = said.strip()
    if not said:
        return Licence("NOASSERTION", {})
    alias = ALIASES.get(said.lower())
    if alias or is_expression(said):
        return Licence(alias or " ".join(said.split()), {})
    name = re.sub(r"[^A-Za-z0-9.]+", "-", re.sub(r"^LicenseRef-", "", said))[:40].strip("-.")
    # Two texts may have the same beginning.
    name = "LicenseRef-%s-%s" % (name, hashlib.sha256(said.encode("utf-8")).hexdigest()[:8])
    return Licence(name, {name: "The package's metadata says: %s" % said})


def is_expression(said: str) -> bool:
    """Tell whether a text is a licence expression whose identifiers are all known."""
    words = _WORDS.findall(said)
    depth, wanted = 0, True
    for position, word in enumerate(words):
        before = words[position - 1] if position else ""
        if word == "(":
            depth += 1
            fits = wanted
        elif word == ")":
            depth -= 1
            fits = not wanted and depth >= 0
        elif word in ("AND", "OR", "WITH"):
            fits = not wanted and not (word == "WITH" and before == ")")
            wanted = True
        else:
            known = EXCEPTIONS if before == "WITH" else IDENTIFIERS
            fits = wanted and (word in known or (before != "WITH" and word.rstrip("+") in known))
            wanted = False
        if not fits:
            return False
    return bool(words) and not wanted and depth == 0

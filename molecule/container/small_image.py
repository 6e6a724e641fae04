# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Put a small image, its definition and their checksums into a site's place of images, and a wheel into a mirror.

Arguments: the place of images, the mirror. Prints the version of the image's Python, and the checksum of the wheel.
"""

import hashlib
import pathlib
import sys
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests"))
from support import apptainer_image

images, mirror = map(pathlib.Path, sys.argv[1:])
images.mkdir(parents=True, exist_ok=True)
image = images / "small.sif"
if not image.exists():
    image.write_bytes(apptainer_image.image().read_bytes())
(images / "small.docker").write_text("FROM scratch\n")
(images / "SHA256SUMS").write_text("%s  small.sif\n" % hashlib.sha256(image.read_bytes()).hexdigest())

wheel = mirror / "files" / "probe-1.0-py3-none-any.whl"
wheel.parent.mkdir(parents=True, exist_ok=True)
if not wheel.exists():
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("probe.py", "ANSWER = 42\n")
        archive.writestr("probe-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: probe\nVersion: 1.0\n")
        archive.writestr(
            "probe-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(
            "probe-1.0.dist-info/RECORD",
            "".join("probe%s,,\n" % name for name in (".py", "-1.0.dist-info/METADATA", "-1.0.dist-info/WHEEL")))
print(apptainer_image.python_version(), hashlib.sha256(wheel.read_bytes()).hexdigest())

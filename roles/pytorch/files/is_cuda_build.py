"""Whether a wheel of PyTorch is a CUDA build, told by the exit code; the wheel's directory is the argument.

The file that says it is read by itself: the CUDA libraries, without which torch cannot be imported, are not there yet.
"""

import glob
import os
import sys
import zipfile


def main(directory):
    (path,) = glob.glob(os.path.join(directory, "*.whl"))
    found = {}
    with zipfile.ZipFile(path) as wheel:
        exec(wheel.read("torch/version.py"), found)
    return 0 if found["cuda"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

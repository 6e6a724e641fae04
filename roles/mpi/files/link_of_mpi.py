"""Have an extension linked with the MPI that its wrapper compiles for.

    link_of_mpi.py directories WRAPPER     print the wrapper's own -L options, for LDFLAGS
    link_of_mpi.py judge WRAPPER WHEEL     end with a sentence where a wheel's objects need another MPI

Where Python is a shared library, setuptools names the directory of that before the wrapper names its own, and
distributions have a libmpi there.
"""

import os
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import zipfile

MPI = re.compile(r"libp?mpi(ch)?(_\w+)?\.so(\.|$)")
CALL = "int MPI_Init(int *, char ***); int main(void) { return MPI_Init(0, 0); }\n"


def directories(wrapper):
    """The -L options that a wrapper adds; none of one that does not say, such as Cray's."""
    said = subprocess.run(
        [*shlex.split(wrapper), "-show"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return re.findall(r"(?:^|\s)(-L\S+)", said.stdout) if said.returncode == 0 else []


def needed(content):
    """The names of the libraries that an ELF object of 64 bits and this order of bytes needs."""
    offset, = struct.unpack_from("=Q", content, 40)
    length, number = struct.unpack_from("=HH", content, 58)
    sections = [struct.unpack_from("=IIQQQQIIQQ", content, offset + length * place) for place in range(number)]
    names = []
    for section in sections:
        if section[1] != 6:  # SHT_DYNAMIC
            continue
        strings = sections[section[6]][4]
        for place in range(section[4], section[4] + section[5], 16):
            tag, value = struct.unpack_from("=qQ", content, place)
            if tag == 1:  # DT_NEEDED
                names.append(os.fsdecode(content[strings + value:content.index(b"\0", strings + value)]))
    return names


def of_mpi(content):
    """The MPI libraries that an object needs."""
    return {name for name in needed(content) if MPI.match(name)}


def of_wrapper(wrapper):
    """The MPI libraries that a program needs which the wrapper links by itself; none where it links none."""
    with tempfile.TemporaryDirectory() as directory:
        source, program = os.path.join(directory, "call.c"), os.path.join(directory, "call")
        with open(source, "w") as stream:
            stream.write(CALL)
        variables = {name: value for name, value in os.environ.items() if name != "LDFLAGS"}
        if subprocess.run([*shlex.split(wrapper), source, "-o", program], env=variables, check=False).returncode != 0:
            return set()
        with open(program, "rb") as stream:
            return of_mpi(stream.read())


def foreign(found, wanted):
    """What an object needs of another MPI than the wanted one; what an MPI has besides, as for GPUs, is its own."""
    names = {name.partition(".so")[0] for name in wanted}
    others = {name for name in found - wanted if name.partition(".so")[0] in names or not found & wanted}
    return others if wanted else set()


def judge(wrapper, wheel):
    """Compare what each object of a wheel needs with what the wrapper links."""
    wanted = of_wrapper(wrapper)
    with zipfile.ZipFile(wheel) as archive:
        objects = {name: archive.read(name) for name in archive.namelist() if ".so" in name}
    for name, content in sorted(objects.items()):
        found = of_mpi(content) if content[:4] == b"\x7fELF" else set()
        others = foreign(found, wanted)
        if others:
            sys.exit(
                "ERROR: %s is compiled for the MPI of %s, which links %s, and is linked with %s of another one. Look "
                "for a -L before the wrapper's own in the step's log, and give mpi4py.environment.LDFLAGS: "
                "-L<directory of the MPI's library>." % (
                    name, wrapper, ", ".join(sorted(wanted)), ", ".join(sorted(others))))


if __name__ == "__main__":
    if sys.argv[1] == "directories":
        print(" ".join(directories(sys.argv[2])))
    else:
        judge(*sys.argv[2:])

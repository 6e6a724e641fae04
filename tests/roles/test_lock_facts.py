# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""bin/lock asks a real git repository, and an index behind TLS with certificates of its own."""

from __future__ import annotations

import functools
import hashlib
import http.server
import shutil
import ssl
import subprocess
import threading

import pytest
from support.package_release import git
from test_lock import RELEASE, Place

FACTS = """\
nccl:
  repository: %(repository)s
  tag: v2.0
mpi4py:
  version: "4.0"
packages:
  - name: far
    archive: %(address)s/far-1.0.tar.gz
"""
CPU = "pytorch: {version: \"2.1\", lock: one/pytorch.txt, cuda_lock: one/pytorch-cuda.txt}"
WHEELS = ("torch-2.1+cpu-cp311-cp311-linux_x86_64.whl", "torch-2.1-cp311-cp311-manylinux_2_28_aarch64.whl",
          "torch-2.1+cpu-cp312-cp312-manylinux_2_28_x86_64.whl", "torch-2.1+cpu-cp312-cp312-win_amd64.whl",
          "torch-2.0+cpu-cp313-cp313-linux_x86_64.whl")


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make_certificate(place):
    """A certificate of localhost, signed by an authority of its own."""
    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=place, check=True, capture_output=True)

    new = ("req", "-newkey", "rsa:2048", "-nodes")
    openssl(*new, "-x509", "-days", "2", "-subj", "/CN=A proxy", "-addext",
            "keyUsage=critical,keyCertSign,cRLSign", "-keyout", "ca.key", "-out", "own-ca.pem")
    openssl(*new, "-subj", "/CN=localhost", "-keyout", "leaf.key", "-out", "leaf.csr")
    (place / "names").write_text("subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n"
                               "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n")
    openssl("x509", "-req", "-in", "leaf.csr", "-CA", "own-ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-extfile", "names", "-out", "leaf.pem")


@pytest.fixture()
def known(tmp_path):
    """A release file whose values are not known, with a repository and an index that know them."""
    if not shutil.which("openssl"):
        pytest.skip("no openssl on this machine")
    place = Place(tmp_path)
    place.repository = tmp_path / "nccl"
    place.repository.mkdir()
    git(place.repository, "init", "--quiet")
    git(place.repository, "commit", "--quiet", "--allow-empty", "-m", "first")
    git(place.repository, "tag", "-a", "-m", "annotated", "v2.0")
    place.served = tmp_path / "served"
    for project, names in (("torch", WHEELS), ("mpi4py", ["mpi4py-4.0.tar.gz", "mpi4py-3.9.tar.gz"])):
        (place.served / "simple" / project).mkdir(parents=True)
        for name in names:
            (place.served / "simple" / project / name).write_text(name)
    (place.served / "far-1.0.tar.gz").write_text("far")
    make_certificate(tmp_path)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_words):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(place.served)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "leaf.pem", tmp_path / "leaf.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    place.address = "https://localhost:%d" % server.server_address[1]
    place.file.write_text(RELEASE.replace(CPU, CPU[:-1] + ",\n  cpu: {index: %s/simple}}" % place.address)
                          + FACTS % {"repository": place.repository.as_uri(), "address": place.address})
    place.variables = {
        "PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": place.address + "/simple",
        "PIP_CERT": str(tmp_path / "own-ca.pem"), "no_proxy": "localhost", "NO_PROXY": "localhost"}
    yield place
    server.shutdown()
    server.server_close()


def test_commits_and_checksums_are_filled_in_once_and_told_when_they_are_others(known):
    block = "\n  cpu:\n    index: %s/simple\n    hashes:\n      cp311: sha256:0\n" % known.address
    flow = CPU[:-1] + ",\n  cpu: {index: %s/simple}}\n" % known.address
    lines = "pytorch:\n  version: \"2.1\"\n  lock: one/pytorch.txt\n  cuda_lock: one/pytorch-cuda.txt" + block
    known.file.write_text(known.file.read_text().replace(flow, lines))
    code, said = known.run(**known.variables)
    assert code == 0 and "Written: 4 of 4 locks, and 4 values of one.yml." in said, said
    text, commit = known.file.read_text(), git(known.repository, "rev-parse", "v2.0^{commit}")
    assert "  tag: v2.0\n  commit: %s\n" % commit in text
    assert '  version: "4.0"\n  sha256: %s\n' % digest(known.served / "simple/mpi4py/mpi4py-4.0.tar.gz") in text
    assert "far-1.0.tar.gz\n    sha256: %s\n" % digest(known.served / "far-1.0.tar.gz") in text
    wheels = ["sha256:" + digest(known.served / "simple" / "torch" / name) for name in WHEELS]
    hashes = "    hashes:\n      cp311:\n        - %s\n        - %s\n      cp312:\n        - %s\n"
    assert hashes % tuple(wheels[:3]) in text
    before = known.state()
    code, said = known.run(**known.variables)
    assert code == 0 and said.endswith("All locks of one.yml are as they have to be.\n"), said
    assert known.state() == before
    git(known.repository, "commit", "--quiet", "--allow-empty", "-m", "second")
    git(known.repository, "tag", "-f", "-a", "-m", "moved", "v2.0")
    code, said = known.run("--check", **known.variables)
    assert code == 1 and "one.yml:\n  nccl.commit %s -> " % commit[:12] in said and known.state() == before, said


def test_behind_a_proxy_with_certificates_that_are_not_known_it_is_one_sentence_and_nothing_is_written(known):
    before = known.state()
    # git asks no index: the first that is asked is that of mpi4py.
    code, said = known.run(**{**known.variables, "PIP_CERT": ""})
    assert code == 2 and known.state() == before
    assert "'mpi4py.sha256' is not known, as " in said and "CERTIFICATE_VERIFY_FAILED" in said, said
    assert said.splitlines()[-1].startswith("lock: ") and said.endswith(
        "give the certificate of the proxy as 'cert' in pip's configuration.\n")


def test_uv_goes_by_the_certificate_that_pip_is_configured_for(known):
    known.file.write_text(RELEASE)
    shutil.copytree(known.wheels, known.served / "wheels")
    known.wheels = known.served / "none"
    for name in ("torch", "ndarray", "triton", "builder"):
        shutil.rmtree(known.served / "simple" / name, ignore_errors=True)
        (known.served / "simple" / name).mkdir()
        for wheel in (known.served / "wheels").glob(name + "-*"):
            shutil.copy(wheel, known.served / "simple" / name)
    index = {**known.variables, "UV_DEFAULT_INDEX": known.address + "/simple", "UV_FIND_LINKS": ""}
    code, said = known.run(**{**index, "PIP_CERT": ""})
    assert code == 2 and "an index is not reached (" in said, said
    assert "give the certificate of the proxy as 'cert' in pip's configuration." in said
    code, said = known.run(**index)
    assert code == 0 and "Written: 4 of 4 locks." in said, said


@pytest.mark.parametrize(("change", "said"), [
    (("tag: v2.0", "tag: v2.00"), "'nccl.tag' is v2.00, which "),
    (('version: "4.0"', 'version: "4.1"'), "'mpi4py.version' is 4.1, of which no place that pip looks at has a source"),
    (('version: "2.1"', 'version: "2.2"'), "'pytorch.version' is 2.2, of which https://localhost"),
    (("nccl\n  tag", "ncll\n  tag"), "'nccl.commit' is not known, as "),
])
def test_what_there_is_not_is_one_sentence_and_nothing_is_written(known, change, said):
    assert change[0] in known.file.read_text()
    known.file.write_text(known.file.read_text().replace(*change))
    before = known.state()
    code, printed = known.run(**known.variables)
    assert code == 2 and said in printed.splitlines()[-1] and known.state() == before, printed


CONTAINER = """\
release: one
base:
  kind: container
  python: "3.10"
  image:
    file: x.sif  # of the spring
    placement: reference
pytorch: {version: "2.1"}
"""


@pytest.fixture()
def container(tmp_path):
    """A release that is a container, of a site with a central place of images."""
    place = Place(tmp_path)
    place.file.write_text(CONTAINER)
    place.central = tmp_path / "images"
    place.central.mkdir()
    place.image = place.central / "x.sif"
    place.image.write_bytes(b"image" * (5 << 20))
    (tmp_path / "hosts.yml").write_text(
        "there:\n  hosts: {here: {ansible_connection: local}}\n"
        "  vars: {torchstack_images: \"{{ lookup('ansible.builtin.env', 'HOME') and '%s' }}\"}\n" % place.central)
    return place


def test_the_checksum_of_an_image_is_read_where_the_site_has_it_and_then_stays(container):
    before = container.state()
    code, said = container.run("--check")
    assert code == 1 and container.state() == before, said
    code, said = container.run()
    assert code == 0, said
    assert "Reading %s, 25 MiB ..." % container.image in said and said.count("/25] MiB\n") == 10, said
    line = "    sha256: %s\n" % digest(container.image)
    assert container.file.read_text() == CONTAINER.replace("of the spring\n", "of the spring\n" + line)
    container.image.write_text("another one")
    assert container.run() == (0, "All locks of one.yml are as they have to be.\n")


@pytest.mark.parametrize(("change", "options", "said"), [
    (lambda place: place.image.unlink(), [], "x.sif cannot be read on this machine (No such file or directory); run"),
    (lambda place: place.file.parents[1].joinpath("hosts.yml").unlink(), [],
     "hosts.yml that has the site's data; name the directory"),
    (lambda place: place.file.parents[1].joinpath("hosts.yml").write_text("a:\n  hosts: {b: }\n"), [],
     "the site names no torchstack_images; name the directory of its images by --images."),
    (lambda place: None, ["--images", "/nowhere"], "as /nowhere/x.sif cannot be read on this machine"),
    (lambda place: (place.central / "SHA256SUMS").write_text("%s  x.sif\n" % ("a" * 64)), [],
     "SHA256SUMS has it, aaaaaaaaaaaa."),
])
def test_a_checksum_that_cannot_be_read_or_is_known_already_is_one_sentence_and_nothing_is_written(
        container, change, options, said):
    change(container)
    before = container.state()
    code, printed = container.run(*options)
    assert code == 0 and container.state() == before, printed
    first, last = printed.splitlines()
    assert first.startswith("Left as it is: base.image.sha256, as ") and said in first, printed
    assert last == "All locks of one.yml are as they have to be."

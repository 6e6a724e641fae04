# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The README's commands as a new account types them, where there is nothing but the README's prerequisites."""

from __future__ import annotations

import pathlib
import re
import urllib.parse

import pytest
import yaml
from support import clean_room
from support.clean_room import CHECKOUT, COPY, HOME

RELEASE = "2026-11-20"
README = (CHECKOUT / "README.md").read_text()
ROLL_OUT = (CHECKOUT / "docs" / "tutorials" / "first-rollout.md").read_text()

TRAIN = """\
import torch
import horovod.torch as hvd

hvd.init()
torch.manual_seed(hvd.rank())
wanted = torch.tensor([[2.0], [-1.0]])
model = torch.nn.Linear(2, 1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
for _step in range(200):
    points = torch.randn(32, 2)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(points), points @ wanted)
    loss.backward()
    optimizer.step()
found = hvd.allgather(model.weight.detach())
assert found.shape == (hvd.size(), 2) and torch.allclose(found, wanted.T.expand_as(found), atol=1e-3), found
print("rank %d of %d: trained, CUDA %s" % (hvd.rank(), hvd.size(), torch.version.cuda))
"""


def block(text, first):
    """The block of commands that begins with these words, as a page shows it."""
    found = [each for each in re.findall(r"(?ms)^```\w*\n(.*?)^```$", text) if each.startswith(first)]
    assert len(found) == 1, (first, found)
    return found[0]


def cpu_index():
    """The host that has PyTorch's CPU builds."""
    definition = yaml.safe_load((CHECKOUT / "inventories/local/releases" / (RELEASE + ".yml")).read_text())
    return urllib.parse.urlsplit(definition["pytorch"]["cpu"]["index"]).hostname


@pytest.fixture(scope="module", autouse=True)
def possible():
    lacking = clean_room.lacking()
    if lacking:
        pytest.skip("no clean room: " + lacking)


@pytest.fixture()
def make_room():
    """Make a room that is removed in the end."""
    made = []

    def make(recipe):
        place = clean_room.KEPT / ("now-" + recipe.suite)
        room = clean_room.Room(recipe, pathlib.Path(place))
        if place.exists():
            room.remove()
        made.append(room)
        room.make()
        return room

    yield make
    for room in made:
        room.remove()


def typed(room, commands, tmp_path):
    """Run commands as the new account; what they print is on disk until they have succeeded."""
    log = tmp_path / "log"
    with open(log, "wb") as stream:
        done = room.run(commands, stdout=stream, stderr=stream, timeout=3000)
    said = log.read_text(errors="replace")
    assert done.returncode == 0, said[-6000:]
    return said


def rolled_out(room, tmp_path):
    """Roll out, write the program that the README starts, and return what the rollout said."""
    assert block(README, "make rollout").splitlines()[0].split("#")[0].strip() == "make rollout"
    said = typed(room, "cd %s && make rollout" % COPY, tmp_path)
    assert "Release %s of site local" % RELEASE in said
    # The release's root is the only thing that a rollout leaves outside the checkout.
    assert typed(room, "ls -A ~ | grep -v '^[.]'", tmp_path).split() == ["hpcml.torchstack", "torchstack"]
    room.run("cat > train.py", input=TRAIN).check_returncode()
    return said


def trained(said):
    """What the two ranks said of CUDA."""
    found = re.findall(r"rank (\d) of 2: trained, CUDA (\S+)", said)
    assert sorted(rank for rank, _cuda in found) == ["0", "1"], said
    return {cuda for _rank, cuda in found}


@pytest.mark.xdist_group("debian-12")
def test_the_readme_on_debian_12_with_lmod(make_room, tmp_path):
    room = make_room(clean_room.LMOD)
    rolled_out(room, tmp_path)
    trained(typed(room, block(README, "module use"), tmp_path))
    assert "2.13.0" in typed(room, "module use ~/torchstack/modulefiles/lmod; module load torchstack\n"
                             "python3 -c 'import torch; print(torch.__version__)'", tmp_path)


@pytest.mark.xdist_group("debian-13")
def test_the_readme_on_debian_13_with_the_cuda_build_and_a_broken_toolkit(make_room, tmp_path):
    room = make_room(clean_room.BROKEN_TOOLKIT._replace(unreachable=(cpu_index(),)))
    assert "release 13.0" in typed(room, "nvcc --version", tmp_path)
    assert room.run("nvcc -c x.cu", capture_output=True).returncode == 1
    rolled_out(room, tmp_path)
    without = block(ROLL_OUT, "release=")
    (cuda,) = trained(typed(room, without + "\ncd %s; horovodrun -np 2 python3 train.py" % HOME, tmp_path))
    assert cuda != "None"

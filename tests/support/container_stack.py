# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A container stack as a rollout leaves it, without the rollout: run scripts and programs beside a small image."""

from __future__ import annotations

import importlib
import pathlib
import shlex
import shutil
import subprocess
from typing import Any, Mapping

import jinja2
from ansible_collections.hpcml.torchstack.plugins.module_utils import standalone
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.zipapp import program_text
from support import apptainer_image

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
ROLE = CHECKOUT / "roles" / "container"
LIBRARIES = {"hostlist": "hostlist", "ranks": "rank_environment"}
NAME = "PyTorch"


class Stack:
    """One installation.

    Args:
        place: where it is made; a directory of this account that is not there yet.
        image: its image.
        gpu: ``amd``, ``nvidia`` or ``none``.
        venv: the name of its virtual environment, or empty.
        wrappers: the commands of the image that it offers besides python3.
    """

    def __init__(
        self, place: pathlib.Path, image: pathlib.Path, gpu: str = "amd", venv: str = "",
        wrappers: tuple[str, ...] = ("python", "pip"),
    ) -> None:
        self.place, self.image = place, image
        self.runscripts, self.programs = place / "runscripts", place / "bin"
        self.home = place.with_name(place.name + "-home")
        shutil.copytree(ROLE / "files" / "runscripts", self.runscripts)
        for name, program in LIBRARIES.items():
            text = program_text(importlib.import_module("%s.%s" % (standalone.__name__, program)))
            (self.runscripts / "lib" / (name + ".py")).write_text(text)
        shutil.copytree(ROLE / "files" / "bin", self.programs)
        base = {
            "name": NAME, "command": "singularity", "gpu": gpu, "binds": [str(place)],
            "venv": {"name": venv} if venv else {}, "image": {"copy": "", "central": str(image)},
        }
        (self.runscripts / "settings.sh").write_text(_rendered("settings.sh.j2", container_base=base))
        for name in ("python3", *wrappers):
            path = self.programs / name
            path.write_text(_rendered("wrapper.j2", __container_wrapper=name))
            path.chmod(0o755)

    def environment(self, module: bool = True) -> dict[str, str]:
        """The variables of a user, who has loaded the stack's module or not."""
        variables = apptainer_image.environment(self.home)
        if module:
            variables.update({
                "SIF": str(self.image), "SIFPYTORCH": str(self.image), "CONTAINERROOT": str(self.place),
                "EBROOTPYTORCH": str(self.place), "RUNSCRIPTS": str(self.runscripts),
                "SINGULARITY_BIND": "%s,%s:/runscripts" % (self.place, self.runscripts),
                "SINGULARITYENV_PREPEND_PATH": "/runscripts",
                "PATH": "%s:%s" % (self.programs, variables["PATH"]),
            })
        return variables

    def run(
        self, *command: Any, module: bool = True, text: str | None = None, variables: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess:
        """Run a command as that user.

        Args:
            command: its words; a program of the stack by its path.
            module: whether the module is loaded.
            text: its standard input.
            variables: further ones of the environment.
        """
        return subprocess.run(
            [str(word) for word in command], env=dict(self.environment(module), **(variables or {})), cwd=self.home,
            input=text or "", capture_output=True, text=True, errors="replace", check=False,
        )


def _rendered(template: str, **variables: Any) -> str:
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    environment.filters["quote"] = lambda text: shlex.quote(str(text))
    return environment.from_string((ROLE / "templates" / template).read_text()).render(**variables)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Make the files of a site's repository from answers, and write them."""

from __future__ import annotations

import pathlib
from typing import Any, Callable, Mapping

import jinja2
import yaml

from ...module_utils.batch import registry
from .dress import dress_of, mpi_of_nodes
from .interview import Answers
from .model import Model
from .questions import AnswerError

TOP = pathlib.Path(__file__).resolve().parents[3]
HOME = TOP / "new-site"
"""Questions, templates, and which release is whose model."""

MAY_BE_THERE = frozenset((".git",))
UNVERIFIED = "  # unverified"
PART_HEAD = (
    "---\n# yaml-language-server: $schema=../../collections/ansible_collections/hpcml/torchstack/docs/reference/"
    "release-file-part.schema.json\n")
"""How a part of a release file begins, for editors."""


class _Dumper(yaml.SafeDumper):
    """Writes a text of several lines as a block."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def in_line(value: Any) -> str:
    """Write data as YAML in one line."""
    return yaml.dump(value, Dumper=_Dumper, default_flow_style=True, width=10_000).strip()


def in_blocks(value: Any) -> str:
    """Write data as YAML with a line for each key."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=10_000).strip()


def settings(name: str) -> dict[str, Any]:
    """Read a file of data beside the templates."""
    return dict(yaml.safe_load((HOME / name).read_text(encoding="utf-8")))


def model_of(name: str) -> Model:
    """Read the release that one with this PyTorch, or on this base, begins with."""
    return Model(TOP / settings("models.yml")[name])


def further_context(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what defaults and templates may name besides the answers."""
    return {"version": model_of(values["pytorch"]).value("pytorch.version")} if values.get("pytorch") else {}


def collection_version() -> str:
    """Return the version of this collection, installed or not."""
    manifest = TOP / "MANIFEST.json"
    if manifest.is_file():
        return str(yaml.safe_load(manifest.read_text(encoding="utf-8"))["collection_info"]["version"])
    return str(yaml.safe_load((TOP / "galaxy.yml").read_text(encoding="utf-8"))["version"])


def render(answers: Answers) -> dict[str, str]:
    """Make the text of every file, by its path."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HOME / "repository"), undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True)
    environment.filters.update(yaml=in_line, blocks=in_blocks)
    context = context_of(answers, {})
    found = {}
    for path, file in settings("files.yml").items():
        if environment.compile_expression(file.get("when", "true"))(**context):
            instead = {
                name: environment.from_string(value).render(**context) for name, value in file.get("with", {}).items()}
            own = context_of(answers, instead) if instead else context
            written = pathlib.PurePosixPath(environment.from_string(path).render(**context))
            files: dict[str, str] = {}
            text = environment.get_template(file["template"]).render(**own, beside=beside_into(files, written.stem))
            found[str(written)] = text
            found.update((str(written.parent / name), one) for name, one in files.items())
    return found


def beside_into(files: dict[str, str], directory: str) -> Callable[[str, str], str]:
    """Return what templates call to have a lock or a part in a file of a directory: name and text, for its path."""
    def beside(name: str, text: str) -> str:
        path = "%s/%s" % (directory, name)
        files[path] = text
        return path

    return beside


def context_of(answers: Answers, instead: Mapping[str, Any]) -> dict[str, Any]:
    """Return what templates name.

    Args:
        answers: to the questions.
        instead: of these, what a file takes.
    """
    values = {**answers.values, **instead}
    brought = mpi_of_nodes(values["toolchain"], values["mpi"])
    if instead and not brought:
        values["mpi"] = "wheel"
    model, conda = model_of(values["pytorch"]), model_of("conda")
    base = conda if values["base"] == "conda" and values["pytorch"] != "source" else model
    as_it_is = values["pytorch"] == "cpu" and values["base"] == "overlay" and (brought or values["mpi"] == "wheel")
    return {
        **further_context(values), **values, "value": model.value, "section": model.section,
        "base_lock": base.value("locks.base"), "conda_lock": conda.value("locks.conda"),
        "model_file": settings("models.yml")[values["pytorch"]], "collection_version": collection_version(),
        "part_head": PART_HEAD, "mark": lambda name: "" if name in answers.said or name in instead else UNVERIFIED,
        "rehearsed": values["release"] if as_it_is else values["release"] + "-rehearsal",
        "queue_key": registry.queue_key, "dress_of": dress_of, "mpi_of_nodes": brought or "mpich",
    }


def refuse_overwriting(directory: pathlib.Path) -> None:
    """Raise AnswerError where a directory has anything but a new repository's .git in it, or is none."""
    if directory.is_dir():
        there = sorted({path.name for path in directory.iterdir()} - MAY_BE_THERE)
        if there:
            raise AnswerError("%s has %s in it, and nothing is overwritten: name a new directory." % (
                directory, ", ".join(there[:3]) + (", ..." if there[3:] else "")))
    elif directory.exists() or directory.is_symlink():
        raise AnswerError("%s is no directory: name a new one." % directory)


def write(directory: pathlib.Path, files: Mapping[str, str]) -> None:
    """Write files below a directory in which there are none. Raises AnswerError: that cannot be done."""
    refuse_overwriting(directory)
    try:
        for name, text in files.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise AnswerError("%s cannot be written: %s." % (error.filename or directory, error.strerror)) from error

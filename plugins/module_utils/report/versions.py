# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""List the versions and origins of a release's parts, from its records and its release file. Pure."""

from __future__ import annotations

from typing import Any, Mapping

from ..core.lenient_json import mapping, text, texts
from .records import Records

WITHOUT_GPUS = "of PyTorch's wheel; nothing else here is built for GPUs"
"""Origin of CUDA in a release whose file has none."""
OF_ITS_WHEEL = "of PyTorch's wheel"
"""Origin of an NCCL of which only the plugin is compiled, and of CUDA where NCCL alone is compiled with another one."""


def list_versions(records: Records, resolved: Mapping[str, Any]) -> list[dict[str, str]]:
    """List name, version and origin of each part, from the build's records, else the release file."""
    build, asked = records.build, mapping(resolved.get("definition"))
    reported = mapping(mapping(build.get("imports")).get("reported"))
    base, mpi, python = (mapping(resolved.get(key)) for key in ("base", "mpi", "python"))
    torch, horovod, nccl = (mapping(build.get(key)) for key in ("pytorch", "horovod", "nccl"))
    cuda, wanted = mapping(asked.get("cuda")), mapping(asked.get("nccl"))
    plugin, toolkit = mapping(wanted.get("plugin")), mapping(wanted.get("cuda"))
    image = mapping(base.get("image"))

    def first(*found: object) -> str:
        return next((said for said in map(text, found) if said), "")

    def version(part: str, *found: object) -> str:
        return first(*found, mapping(asked.get(part)).get("version"))

    providers = {"wheel": "of its wheel", "path": "on PATH", "image": "of the image"}
    over = (", ".join(texts(horovod.get(key))) for key in ("frameworks", "operations"))
    rows = [
        ("Base", text(base.get("kind")).replace("_", " "), first(image.get("file"), base.get("prefix"))),
        ("Python", first(python.get("version"), base.get("minor")),
         first(python.get("executable"), base.get("python"))),
        ("PyTorch", version("pytorch", torch.get("version"), reported.get("torch.__version__")),
         ", ".join(filter(None, (_format_disk_space(torch), text(torch.get("origin")))))),
        ("CUDA", version("cuda", torch.get("cuda"), reported.get("torch.version.cuda")),
         text(cuda.get("prefix")) or ((OF_ITS_WHEEL if toolkit else WITHOUT_GPUS) if torch.get("cuda") else "")),
        ("NCCL", version("nccl", nccl.get("version")),
         text(wanted.get("repository")) or (OF_ITS_WHEEL if wanted else "")),
        ("CUDA of NCCL", text(toolkit.get("version")), text(toolkit.get("prefix"))),
        ("NCCL's network plugin", text(plugin.get("version")), text(plugin.get("repository"))),
        ("MPI", _mpi_version(reported) or providers.get(text(mpi.get("provider")), text(mpi.get("provider"))),
         text(mpi.get("prefix"))),
        ("mpi4py", version("mpi4py"), ""),
        ("Horovod", version("horovod", horovod.get("version")), " over ".join(part for part in over if part)),
    ]
    return [{"name": name, "version": said, "origin": origin} for name, said, origin in rows if said]


def _format_disk_space(torch: Mapping[str, Any]) -> str:
    """Format the disk space of PyTorch with what only it needs; empty where that was not measured."""
    taken = torch.get("bytes")
    return "%.1f GB with what it needs" % (taken / 1e9) if isinstance(taken, int) and taken else ""


def _mpi_version(reported: Mapping[str, Any]) -> str:
    """Shorten the version text of the MPI library to its first line."""
    said = next((text(value) for key, value in reported.items() if "Get_library_version" in key), "")
    return " ".join(said.partition("\n")[0].replace("MPI VERSION", "").replace("Version", "").replace(":", "").split())

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Have Ansible write the record of a run that the callback run_record makes, and read it."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import tempfile
from typing import Iterator

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.lenient_json import mapping

CALLBACK = "hpcml.torchstack.run_record"
"""What writes the record; see plugins/callback."""

PATH = "TORCHSTACK_RUN_RECORD"
"""The variable that says where to."""


def recording(record: pathlib.Path, directory: pathlib.Path | None = None) -> dict[str, str]:
    """Return the variables by which Ansible writes a record, besides what the site has enabled.

    Args:
        directory: where ansible-playbook is started, if that is not the working directory.
    """
    try:
        # The variable hides what an ansible.cfg has.
        from ansible.config.manager import ConfigManager

        own = directory / "ansible.cfg" if directory and not os.environ.get("ANSIBLE_CONFIG") else None
        config = ConfigManager(str(own) if own and own.is_file() else None)
        enabled = [*config.get_config_value("CALLBACKS_ENABLED"), CALLBACK]
    except ImportError:
        enabled = [*filter(None, os.environ.get("ANSIBLE_CALLBACKS_ENABLED", "").split(",")), CALLBACK]
    return {"ANSIBLE_CALLBACKS_ENABLED": ",".join(dict.fromkeys(enabled)), PATH: str(record)}


@contextlib.contextmanager
def kept(directory: pathlib.Path) -> Iterator[tuple[pathlib.Path, dict[str, str]]]:
    """Keep a record as long as it is needed, or where somebody's own program wants it as well.

    Yields its place, and the variables by which Ansible writes it; for ``directory`` see :func:`recording`.
    """
    with tempfile.TemporaryDirectory(prefix="torchstack-") as place:
        record = pathlib.Path(os.environ.get(PATH) or os.path.join(place, "run.json"))
        # One of an earlier run would be taken for this one's, if nothing is played.
        record.unlink(missing_ok=True)
        yield record, recording(record, directory)


def read(record: pathlib.Path) -> dict[str, object]:
    """Read a record; empty where there is none, as nothing was played."""
    try:
        return mapping(json.loads(record.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}

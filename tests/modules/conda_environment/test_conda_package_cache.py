# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""conda_package_cache as Ansible runs it, on a cache that conda_environment filled."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import stat

NEW = {"libtoy-2.1.0-h1_0", "toydata-2.0.0-0"}


def test_a_cache_is_kept_in_order_and_stays_of_use(run_module, channel, tmp_path):
    root, cache = tmp_path / "root", tmp_path / "root" / ".torchstack" / "conda-pkgs"
    cache.parent.mkdir(parents=True)
    os.chmod(cache.parent, 0o2775)

    def install(release, *specs):
        (root / release).mkdir(exist_ok=True)
        made = run_module("conda_environment", {
            "prefix": str(root / release / "base"), "channels": [channel.url], "cache": str(cache), "specs": specs,
        })
        assert not made.failed, made.console

    def keep(check=False, diff=False, **policy):
        arguments = {"path": str(cache), "root": str(root), "keep": policy}
        result = run_module("conda_package_cache", arguments, check=check, diff=diff)
        assert not result.failed, result.console
        return result

    install("2026-11-20", "libtoy")
    install("2026-12-01", "toysettings")
    shutil.rmtree(root / "2026-12-01" / "base")
    (cache / ".libtoy-2.1.0-h1_0aBcDeF").mkdir()
    notes = {path.name: path.read_text() for path in (cache / ".checked").iterdir()}

    planned = keep(check=True, diff=True, leftovers=False, unused=False)
    assert planned.changed and "toysettings-1.0.0-0 (" in planned.console
    assert set(planned["described"]) == {"urls.txt", *NEW}
    assert (cache / "toysettings-1.0.0-0").is_dir() and not (cache / "urls.txt").exists()

    done = keep(leftovers=False, unused=False)
    assert [item["name"] for item in done["removed"]] == [".libtoy-2.1.0-h1_0aBcDeF", "toysettings-1.0.0-0"]
    assert {path.name for path in cache.iterdir() if not path.name.startswith(".")} == {
        "urls.txt", *NEW, *(stem + ".lock" for stem in NEW),
    }
    assert not keep(check=True, leftovers=False, unused=False).changed
    assert not keep(leftovers=False, unused=False).changed

    described = json.loads((cache / "libtoy-2.1.0-h1_0" / "info" / "repodata_record.json").read_text())
    assert described["url"] == channel.package("libtoy").as_uri() and described["sha256"] == notes["libtoy-2.1.0-h1_0"]
    modes = {stat.S_IMODE(path.lstat().st_mode) for path in [cache, *cache.rglob("*")] if path.is_dir()}
    assert modes == {0o2755}

    written = {path: path.stat().st_ctime_ns for path in cache.rglob("*") if path.is_file() and "lib" in path.parts}
    install("2026-12-01", "libtoy", "toysettings")
    assert written == {path: path.stat().st_ctime_ns for path in written}
    assert {path.name for path in pathlib.Path(cache).glob("toysettings*")} == {
        "toysettings-1.0.0-0", "toysettings-1.0.0-0.lock",
    }

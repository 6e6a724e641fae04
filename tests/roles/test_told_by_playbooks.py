# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the site's own programs are told by the playbooks accept, publish and rollback, and what they cannot spoil."""

from __future__ import annotations

import json

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.publication_facts import read_facts
from support import published_release, sites

RELEASE = "2"
FOUND = ("Find the release", "Read what is known of its problems")
"""The tasks that read a release file, in place of which these tests say what a rollout has found."""


@pytest.fixture(name="play")
def player(tmp_path, ansible_environment):
    """Run a playbook of the collection over two accepted releases, the second one the default."""
    root = tmp_path / "root"
    for release in ("1", RELEASE):
        published_release.stage(root, release)
        published_release.change(root, release, default=True)
    context = {"frozen": True, "freezing": False, "thawed": False, "root": str(root), "release": RELEASE}

    def run(name, *words, hook="exit 0", checked=None):
        """Run it with a hook, and for `accept` with this in place of what looks at nodes and at the release."""
        (play,) = sites.load(sites.TOP / "playbooks" / (name + ".yml"))
        tasks = [task for task in play["tasks"] if task["name"] not in FOUND]
        if checked is not None:
            (accepted,) = [task for task in tasks if "always" in task]
            accepted["block"][:-1] = [{"name": "Look", **checked}]
        told = {"run": ["sh", "-c", "cat >> %s; echo no room; %s" % (tmp_path / "told", hook)]}
        play.update(hosts="localhost", tasks=tasks)
        play["vars"] = {
            "torchstack_release": RELEASE, **play.get("vars", {}), "torchstack_root": str(root),
            "torchstack_site": "mysite", "torchstack_hooks": [told], "release_context": context}
        playbook = tmp_path / (name + ".yml")
        playbook.write_text(json.dumps([play]))
        done = sites.ansible_command(
            "ansible-playbook", ["-i", "localhost,", "-c", "local", str(playbook), *words], ansible_environment)
        events = tmp_path / "told"
        said = [json.loads(line) for line in events.read_text().splitlines()] if events.exists() else []
        events.unlink(missing_ok=True)
        return done.returncode, done.stdout + done.stderr, said

    run.root = root
    return run


def default(root):
    return set(read_facts(str(root), "1").defaults.values())


def is_told(event, what, *sentences):
    """Compare an event with what has happened to the release."""
    assert {key: event[key] for key in ("schema", "site", "release", "events")} == {
        "schema": 1, "site": "mysite", "release": RELEASE, "events": [what]}
    assert all(any(part in sentence for sentence in event["sentences"]) for part in sentences), event


HOOKS = pytest.mark.parametrize(("hook", "warned"), [("exit 0", False), ("exit 3", True)], ids=["works", "fails"])


@HOOKS
def test_a_rollback_and_a_publication_tell_it_once_and_again_nothing(play, hook, warned):
    code, said, told = play("rollback", hook=hook)
    assert code == 0 and default(play.root) == {"1"}, said
    is_told(*told, "rolled_back", "torchstack/1")
    assert ("ended with status 3: no room" in " ".join(said.split())) is warned
    code, said, told = play("publish", "-e", "publish_to=default", hook=hook)
    assert code == 0 and default(play.root) == {RELEASE}, said
    is_told(*told, "published", "torchstack/2")
    assert ("ended with status 3: no room" in " ".join(said.split())) is warned
    code, said, told = play("publish", "-e", "publish_to=default", hook=hook)
    assert (code, told) == (0, []), said


def test_the_plan_of_a_rollback_tells_nobody(play):
    code, said, told = play("rollback", "--check")
    assert (code, told) == (0, []) and default(play.root) == {RELEASE}, said


@HOOKS
@pytest.mark.parametrize(("checked", "what", "ended"), [
    ({"ansible.builtin.debug": {"msg": "all is well"}}, "accepted", 0),
    ({"ansible.builtin.fail": {"msg": "a rank has died"}}, "not_accepted", 2),
], ids=["accepted", "not accepted"])
def test_an_acceptance_tells_once_how_it_ended(play, hook, warned, checked, what, ended):
    code, said, told = play("accept", hook=hook, checked=checked)
    assert code == ended, said
    is_told(*told, what)
    assert ("ended with status 3: no room" in " ".join(said.split())) is warned
    assert (play.root / ".torchstack" / RELEASE / "report.html").exists()

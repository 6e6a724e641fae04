# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run the function of an Ansible module, and turn its errors into results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence, Union

from .errors import StackError, system_remedy

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

Content = Union[str, bytes, Sequence[str], None]

FILES = "files"
"""``failed_step`` of an error of the system that a function leaves as it is."""

RELEASE: dict[str, Any] = {"root": {"type": "path", "required": True}, "release": {"type": "str", "required": True}}
"""The options that plugins/doc_fragments/_release.py documents."""


def run_module(
    function: Callable[[AnsibleModule], Mapping[str, Any]], options: dict[str, Any], failed_step: str = FILES,
    with_path: bool = True, describe: Callable[[AnsibleModule, dict[str, Any]], dict[str, Any]] | None = None,
    **rules: Any,
) -> None:
    """Run the function of a module that supports check mode, and exit with its result or with its failure.

    ``rules`` are those between ``options``, as AnsibleModule takes them. An OSError is a failure of ``failed_step``.
    ``with_path``: a result with a path gets the file's mode, owner and ``state`` added by AnsibleModule, which would
    take the place of the module's own ``state``. ``describe`` returns a failure as the module shows it.
    """
    from ansible.module_utils.basic import AnsibleModule

    module = AnsibleModule(options, supports_check_mode=True, **rules)
    try:
        result = function(module)
    except StackError as error:
        failure = error
    except OSError as error:
        failure = system_failure(error, failed_step)
    else:
        module.exit_json(**result)
        return
    failed = failure.as_result()
    if not with_path:
        failed.pop("path", None)
    module.fail_json(**(describe(module, failed) if describe else failed))


def text_diff(header: str, before: Content, after: Content) -> dict[str, str]:
    """Return the difference of two contents as Ansible shows it; None is an empty one, a sequence has lines."""
    return {"before_header": header, "before": _shown(before), "after_header": header, "after": _shown(after)}


def _shown(content: Content) -> str:
    if isinstance(content, bytes):
        return content.decode("utf-8", "replace")
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(line + "\n" for line in content)


def system_failure(error: OSError, failed_step: str) -> StackError:
    """Return the failure for an error of the system that nothing more is known of."""
    reason = error.strerror or str(error) or type(error).__name__
    return StackError(
        "%s: %s." % (error.filename, reason) if error.filename else "%s." % reason, failed_step,
        system_remedy(error, "Check that this account may write there and that there is space") + ".",
    )

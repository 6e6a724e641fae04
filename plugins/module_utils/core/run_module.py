# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run the function of an Ansible module, and turn its errors into results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Mapping

from .errors import StackError, system_remedy

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

FILES = "files"
"""``failed_step`` of an error of the system that a function leaves as it is."""


def run_module(
    module: AnsibleModule, function: Callable[[AnsibleModule], Mapping[str, Any]], failed_step: str = FILES,
    with_path: bool = True, describe: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> None:
    """Run a module's function, and exit with its result or with its failure, as ``describe`` returns that.

    An OSError is a failure of ``failed_step``. ``with_path``: a result with a path gets the file's mode, owner and
    ``state`` added by AnsibleModule, which would take the place of the module's own ``state``.
    """
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
    module.fail_json(**(describe(failed) if describe else failed))


def system_failure(error: OSError, failed_step: str) -> StackError:
    """Return the failure for an error of the system that nothing more is known of."""
    reason = error.strerror or str(error) or type(error).__name__
    return StackError(
        "%s: %s." % (error.filename, reason) if error.filename else "%s." % reason, failed_step,
        system_remedy(error, "Check that this account may write there and that there is space") + ".",
    )

"""VLLM105: a file that the rollout needs cannot be read or is not there, so nothing can be said about what it uses."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.api._unread import unread_file
from verl_doctor.checks.api._vllm_examples import BOTH, SERVER, seen
from verl_doctor.checks.api._vllm_unjudged import uses_unjudged
from verl_doctor.toolkit.collectors.api.uses import Unread, VllmUses, rollouts
from verl_doctor.toolkit.rule import Example, Finding, check

_BROKEN = Unread(
    "verl.workers.rollout.vllm_rollout.vllm_async_server", SERVER, "line 12: invalid syntax", BOTH, 12
)
_ASIDE = Unread("verl.utils.qat", "/env/verl/utils/qat.py", "line 3: invalid syntax", (), 3)
_GONE = Unread(
    "verl.workers.rollout.vllm_rollout.vllm_async_server", "/env/verl/workers/rollout/replica.py",
    "there is no module verl.workers.rollout.vllm_rollout.vllm_async_server", ("async rollout",), 213, "missing",
)  # fmt: skip
_LOCKED = Unread(
    "verl.utils", "/env/verl/utils", "/env/verl/utils cannot be read: Permission denied", BOTH, 0, "file"
)
_DAMAGED = Unread(
    "vllm.engine.arg_utils", "/env/vllm/engine/arg_utils.py", "line 7: '(' was never closed", BOTH, 7
)
_NEWER = Unread("vllm.config", "/env/vllm/config.py", "line 3: invalid syntax", (), 3, "reader")


@check(
    "VLLM105",
    phase="import",
    paths=rollouts,
    unjudged=uses_unjudged(),
    examples=lambda: [
        Example("every file can be read", seen()),
        Example("a file of both rollouts is broken", seen(unread=(_BROKEN,)), expect="vllm_async_server"),
        Example(
            "a file that no rollout loads by itself is broken",
            seen(unread=(_ASIDE,)),
            expect="verl.utils.qat",
        ),
        Example("a file that verl imports is not there", seen(unread=(_GONE,)), expect="does not have"),
        Example("a folder may not be read", seen(unread=(_LOCKED,)), expect="verl.utils cannot be read"),
        Example("a file of vLLM is damaged", seen(unread=(_DAMAGED,)), expect="this vLLM is damaged"),
        Example("a file may be for a newer Python", seen(unread=(_NEWER,)), expect="not judged"),
    ],
)
def verl_source_unreadable(uses: VllmUses) -> Iterator[Finding]:
    """A source file that the rollout needs cannot be read.

    ## Why it matters
    Python cannot import what is not there, may not be read, or cannot be parsed: the rollouts that load the file fail,
    on every node. It is also why other rules have nothing to say about this file.

    ## How to fix
    Look at the line: half a merge, an edit by hand, a file that was cut short by a full disk. Where the file came with
    a wheel, reinstalling the package brings it back; `verl-doctor undo` does when verl-doctor changed it. Where it may
    not be read, give the user of the job the right to. Where it may be written for a newer Python, the doctor must
    run under the Python of the job.
    """
    for file in uses.unread:
        theirs = f"{file.module}.".startswith(f"{uses.library.module}.")
        package = "vLLM" if theirs else "verl"
        yield unread_file(file, package, damaged="this vLLM is damaged: " if theirs else "")

"""VLLM105: a source file that the rollout needs cannot be read."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.api._unread import unread_file
from verl_doctor.checks.api._vllm_examples import BOTH, SERVER, seen
from verl_doctor.checks.api._vllm_unjudged import uses_unjudged
from verl_doctor.toolkit.collectors.api.uses import Unread, VllmUses, rollouts
from verl_doctor.toolkit.rule import Example, Finding, check

_BROKEN = Unread(
    module="verl.workers.rollout.vllm_rollout.vllm_async_server",
    path=SERVER,
    reason="line 12: invalid syntax",
    paths=BOTH,
    line=12,
)
_ASIDE = Unread(
    module="verl.utils.qat", path="/env/verl/utils/qat.py", reason="line 3: invalid syntax", paths=(), line=3
)
_GONE = Unread(
    module="verl.workers.rollout.vllm_rollout.vllm_async_server",
    path="/env/verl/workers/rollout/replica.py",
    reason="there is no module verl.workers.rollout.vllm_rollout.vllm_async_server",
    paths=("async rollout",),
    line=213,
    kind="missing",
)
_LOCKED = Unread(
    module="verl.utils",
    path="/env/verl/utils",
    reason="/env/verl/utils cannot be read: Permission denied",
    paths=BOTH,
    line=0,
    kind="file",
)
_DAMAGED = Unread(
    module="vllm.engine.arg_utils",
    path="/env/vllm/engine/arg_utils.py",
    reason="line 7: '(' was never closed",
    paths=BOTH,
    line=7,
)
_NEWER = Unread(
    module="vllm.config",
    path="/env/vllm/config.py",
    reason="line 3: invalid syntax",
    paths=(),
    line=3,
    kind="reader",
)


def _examples() -> list[Example]:
    return [
        Example("every file can be read", seen()),
        Example("a file of both rollouts is broken", seen(unread=(_BROKEN,)), expect="vllm_async_server"),
        Example(
            "a file that no rollout loads by itself is broken",
            seen(unread=(_ASIDE,)),
            expect="verl.utils.qat",
        ),
        Example(
            "a file that verl imports is missing", seen(unread=(_GONE,)), expect="is missing from this tree"
        ),
        Example("a folder may not be read", seen(unread=(_LOCKED,)), expect="verl.utils cannot be read"),
        Example("a file of vLLM is damaged", seen(unread=(_DAMAGED,)), expect="this vLLM is damaged"),
        Example("a file may be written for a newer Python", seen(unread=(_NEWER,)), expect="not checked"),
    ]


@check("VLLM105", phase="import", paths=rollouts, unjudged=uses_unjudged(), examples=_examples)
def verl_source_unreadable(uses: VllmUses) -> Iterator[Finding]:
    """A source file that the rollout needs cannot be read.

    ## Why it matters

    Python cannot import a file that is missing, unreadable or broken: the rollouts that load the file fail,
    on every node. Other rules cannot check this file either.

    ## How to fix

    Look at the line. Common causes are a half-finished merge, a manual edit, and a file truncated by a full
    disk. If the file came with a wheel, reinstall the package; if verl-doctor changed it, run `verl-doctor
    undo`. If it is not readable, give the job's user permission. If it may be written for a newer Python, use
    the job's Python to run verl-doctor.
    """
    for file in uses.unread:
        theirs = f"{file.module}.".startswith(f"{uses.library.module}.")
        package = "vLLM" if theirs else "verl"
        yield unread_file(file, package, damaged="this vLLM is damaged: " if theirs else "")

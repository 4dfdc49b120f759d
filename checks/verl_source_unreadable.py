"""VLLM105: a file of verl cannot be read as Python, so nothing can be said about what it uses."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks._vllm_examples import BOTH, SERVER, seen
from verl_doctor.toolkit.fact_vllm_uses import Unread, VllmUses, rollouts
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, check

_BROKEN = Unread(
    "verl.workers.rollout.vllm_rollout.vllm_async_server", SERVER, "line 12: invalid syntax", BOTH
)
_ASIDE = Unread("verl.utils.qat", "/env/verl/utils/qat.py", "line 3: invalid syntax", ())


@check(
    "VLLM105",
    paths=rollouts,
    examples=[
        Example("every file can be read", seen()),
        Example("a file of both rollouts is broken", seen(unread=(_BROKEN,)), expect="vllm_async_server"),
        Example(
            "a file that no rollout loads by itself is broken",
            seen(unread=(_ASIDE,)),
            expect="verl.utils.qat",
        ),
    ],
)
def verl_source_unreadable(uses: VllmUses) -> Iterator[Finding]:
    """A source file of verl cannot be read as Python.

    ## Why it matters
    Python cannot import what cannot be parsed: the rollouts that load the file fail with SyntaxError, on every node. It
    is also why other rules have nothing to say about this file.

    ## How to fix
    Look at the line: half a merge, an edit by hand, a file that was cut short by a full disk. Where the file came with
    the wheel, reinstalling verl brings it back; `verl-doctor undo` does when verl-doctor changed it.
    """
    for file in uses.unread:
        yield Finding(
            f"{file.module} cannot be read as Python",
            Evidence(file.reason, "Python source"),
            Location(file.path),
            remedy="mend the file, or reinstall verl",
            severity=None if file.paths else "warning",
            stops=file.paths,
        )

"""The commands that come next, after what the logs show."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from verl_doctor.toolkit.logs.answer import Answer
from verl_doctor.toolkit.logs.causes import fault_of
from verl_doctor.toolkit.logs.confirming import JUDGED_BEFORE, confirming, is_refuted, not_named
from verl_doctor.toolkit.text import appended


def next_steps(answer: Answer) -> Sequence[str]:
    """Return commands, the most useful first."""
    steps = []
    for cause in answer.reading.causes[:2]:
        signature = cause.signature
        if signature is None:
            continue
        named = appended(answer.arguments)
        if confirm := confirming(signature, answer.arguments):
            steps.append(f"{confirm}  # check whether this machine has the fault")
        if signature.code in answer.fixes and not is_refuted(answer, cause):
            subject = not_named(signature.code, answer.arguments)
            steps.append(
                f"verl-doctor fix {subject}--select {signature.code}{named}  # the repair, as a diff"
            )
        steps.append(f"verl-doctor explain {signature.code}")
    first = answer.reading.first
    if not steps and first is not None and fault_of(first) in JUDGED_BEFORE:
        script = not_named("CFG", answer.arguments) or "".join(
            f"{shlex.quote(word)} " for word in answer.arguments
        )
        steps.append(f"verl-doctor check {script} # judge the script and the configuration before a run")
    if _only_consequences(answer):
        steps.append(
            "verl-doctor logs /tmp/ray/session_latest/logs  # the logs of Ray's processes, on the node "
            "that died"
        )
    return steps


def _only_consequences(answer: Answer) -> bool:
    """Return whether the logs show that something died but not why, which other processes' logs may show."""
    error = answer.reading.error
    known = error.signature if error is not None else None
    if answer.reading.first is not None or (error is not None and known is None):
        return False
    return bool(answer.reading.consequences) and (known is None or known.kind == "consequence")

"""How rules confirm a cause on this machine: the command that runs them, and what they found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from verl_doctor.toolkit.logs.answer import Answer
from verl_doctor.toolkit.logs.blame import Fault
from verl_doctor.toolkit.logs.causes import name_of
from verl_doctor.toolkit.logs.logged_error import LoggedError
from verl_doctor.toolkit.logs.signature import Signature
from verl_doctor.toolkit.rule import Finding, family_of
from verl_doctor.toolkit.text import appended

JUDGED_BEFORE: tuple[Fault | Literal["environment"], ...] = ("configuration", "launch")
"""What `check` also judges. The pages of codes that state only who is at fault add nothing to the answer."""
_SUBJECTS = {"CFG": "LAUNCH_SCRIPT ", "DATA": "LAUNCH_SCRIPT ", "LOAD": "--model DIR "}
"""The input that a rule of this family requires."""


def confirming(signature: Signature, arguments: Sequence[str] = ()) -> str:
    """Return the command that confirms the fault on this machine, "" if there is none.

    `arguments` name the target.
    """
    if not signature.rules:
        return ""
    subject = not_named(signature.rules[0], arguments)
    deep = " --deep" if signature.deep else ""
    named = appended(arguments)
    return f"verl-doctor check {subject}--select {','.join(signature.rules)}{deep}{named}"


def not_named(code: str, arguments: Sequence[str]) -> str:
    """Return the placeholder of the input that a rule requires and the arguments do not name, or ""."""
    subject = _SUBJECTS.get(family_of(code), "")
    launch = list(arguments)
    while launch and launch[0].startswith("--") and launch[0] != "--":
        del launch[:2]
    return "" if (launch if subject.startswith("LAUNCH") else "--model" in arguments) else subject


def confirmation(answer: Answer, cause: LoggedError) -> str:
    """Return whether a rule confirms a cause here; "" if no rules were to be run."""
    if answer.confirmed is None:
        return ""
    code, _ = name_of(cause)
    if code not in answer.confirmed:
        needs_script = cause.blame is not None and cause.blame.fault in JUDGED_BEFORE
        return "no rule can confirm this" + (" without the launch script (--script)" if needs_script else "")
    each = answer.confirmed[code]
    found = next((rule for rule in each if rule.is_finding), None)
    if found is not None:
        return f"confirmed here by {found.code}" + (f" at {found.place}" if found.place else "")
    return "not confirmed here" + (f" by {', '.join(rule.code for rule in each)}" if each else "")


def is_refuted(answer: Answer, cause: LoggedError) -> bool:
    """Return whether rules that could confirm a cause here found nothing."""
    each = (answer.confirmed or {}).get(name_of(cause)[0], ())
    return bool(each) and not any(rule.is_finding for rule in each)


def is_about(finding: Finding, cause: LoggedError) -> bool:
    """Return whether a rule's error is about the setting that an exception names, or about its place.

    Of settings that belong together, such as the path and the name of a class, a rule may name another one:
    it counts if both strike in the same phase.
    """
    blame, subject, place = cause.blame, finding.subject, finding.location
    if blame is None or finding.severity != "error":
        return False
    if subject is not None and subject.kind == "setting":
        named = f".{subject.name}"
        group = subject.name.rpartition(".")[0] if finding.phase == cause.phase else ""
        for key in blame.settings:
            if named.endswith(f".{key}") or f".{key}".endswith(named):
                return True
            if "." in group and key.rpartition(".")[0] == group:
                return True
    if blame.fault == "launch":
        return finding.phase == "shell"
    return place is not None and bool(blame.place) and blame.place.partition(", in ")[0] == str(place)

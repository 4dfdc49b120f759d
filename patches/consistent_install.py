"""Fix for PKG101: one installer command after which the requirements of verl and vLLM agree."""

from __future__ import annotations

from verl_doctor.toolkit.change import Change, Refusal, RunCommand, fix
from verl_doctor.toolkit.fact_resolution import Resolution
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.text import counted

_SHOWN = 12


@fix(
    "consistent-install",
    repairs="PKG101",
    safety="unsafe",
    restart="everything that imports the changed packages",
)
def consistent_install(_: Finding, resolution: Resolution) -> list[Change] | Refusal:
    """Install versions that agree with torch, vLLM and verl as they are.

    The command is resolved as a dry run first where a package index answers. What the installer would change is said; when it
    finds no versions that agree, the fix refuses with the installer's own reason.
    """
    if resolution.outcome == "unsatisfiable":
        return Refusal(f"no versions agree with {', '.join(resolution.keeps)}: {resolution.reason}")
    if resolution.outcome == "resolved" and not resolution.changes:
        return Refusal("the installer's dry run would change nothing")
    return [RunCommand(resolution.command, _why(resolution))]


def _why(resolution: Resolution) -> str:
    keeps = f"keeps {', '.join(resolution.keeps)}"
    if resolution.outcome == "unanswered":
        return f"{keeps}; not tried as a dry run: {resolution.reason}"
    rest = len(resolution.changes) - _SHOWN
    shown = ", ".join(resolution.changes[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
    return f"{keeps}; a dry run changed {counted(len(resolution.changes), 'package')}: {shown}"

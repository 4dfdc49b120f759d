"""Fix for PKG101: one installer command after which the requirements of verl and vLLM agree."""

from __future__ import annotations

import re
import shlex

from verl_doctor.toolkit.change import Change, Refusal, RunCommand, fix
from verl_doctor.toolkit.collectors.packages.resolution import Resolution
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.text import counted, listed

_SHOWN = 12
# Builds with a local version ("+cpu", "+cu128") are on PyTorch's own index only, which has a folder for each.
_LOCAL_TORCH = re.compile(r"(?:torch|torchvision|torchaudio)==[^+,]*\+(cpu|cu\d+|rocm[\d.]+|xpu)")


@fix(
    "consistent-install",
    repairs="PKG101",
    safety="unsafe",
    restart="everything that imports the changed packages",
)
def consistent_install(_: Finding, resolution: Resolution) -> list[Change] | Refusal:
    """Install versions that agree with torch, vLLM and verl as they are.

    The command is resolved as a dry run first where a package index answers. What the installer would change is said; when it
    finds no versions that agree, the fix refuses with the installer's own reason, and says where to look for a version
    that no configured index has.
    """
    if resolution.not_offered:
        return Refusal(f"{resolution.reason}. {_where_from(resolution)}")
    if resolution.outcome == "unsatisfiable":
        return Refusal(f"no versions agree with {', '.join(resolution.keeps)}: {resolution.reason}")
    if resolution.outcome == "resolved" and not resolution.changes:
        return Refusal("the installer's dry run would change nothing")
    return [RunCommand(resolution.command, _why(resolution))]


def _why(resolution: Resolution) -> str:
    if resolution.left_out:
        shown = listed(resolution.changes, _SHOWN)
        return f"only what stops the job, because no configured index has {resolution.left_out}: {shown}"
    keeps = f"keeps {', '.join(resolution.keeps)}"
    if resolution.outcome == "unanswered":
        return f"not verified: {resolution.reason}; {keeps}"
    shown = listed(resolution.changes, _SHOWN)
    return f"{keeps}; a dry run changed {counted(len(resolution.changes), 'package')}: {shown}"


def _where_from(resolution: Resolution) -> str:
    """Say how to name an index or folder that has it. Both the dry run and the installation read these variables."""
    prefix = "PIP" if "-m" in resolution.command else "UV"
    local = _LOCAL_TORCH.fullmatch(resolution.not_offered)
    index = f"https://download.pytorch.org/whl/{local[1]}" if local else "URL"
    return (
        f"Name an index that has it (export {prefix}_EXTRA_INDEX_URL={index}), or the folder with the wheel that it was "
        f"installed from (export {prefix}_FIND_LINKS=FOLDER), then run verl-doctor fix again. "
        f"The command will be: {shlex.join(resolution.command)}"
    )

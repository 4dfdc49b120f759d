"""Fix for PKG101 and broken distributions: one lock makes the requirements of verl and its engine agree."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from verl_doctor.toolkit.change import Change, InstallPackages, Refusal, fix
from verl_doctor.toolkit.collectors.packages.installer_limit import APPLY, LONGEST
from verl_doctor.toolkit.collectors.packages.resolution import Resolution
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.text import listed

_SHOWN = 12
# Builds with a local version ("+cpu", "+cu128") are only on PyTorch's own index, which has a folder for each.
_LOCAL_TORCH = re.compile(r"(?:torch|torchvision|torchaudio)==[^+,]*\+(cpu|cu\d+|rocm[\d.]+|xpu)")


@fix(
    "consistent-install",
    repairs=("PKG101", "PKG102", "PKG105", "CUDA116", "VLLM106", "RAY104", "CFG120"),
    safety="unsafe",
    restart="Ray and the job, with the environment that has the changed packages",
)
def consistent_install(_: Finding, resolution: Resolution) -> list[Change] | Refusal:
    """Install compatible versions, in a copy of the environment.

    verl stays as it is, with the extras that the job needs; so do torch and the engine, if possible. The
    whole closure is resolved in a dry run first, and then installed from a lock file. If no
    package index responds, nothing is installed. If no versions agree, the fix refuses with the installer's
    own reason, and suggests where to find a version that no configured index has.
    """
    if resolution.not_offered:
        return Refusal(f"{resolution.reason}. {_where_from(resolution)}")
    if resolution.outcome == "unsatisfiable":
        return Refusal(f"no versions agree with {', '.join(resolution.keeps)}: {resolution.reason}")
    if 0 < resolution.out_of_time < LONGEST:
        longer = min(max(APPLY, 2 * resolution.out_of_time), LONGEST)
        return Refusal(
            f"{resolution.reason}, so the plan lacks these packages; "
            f"verl-doctor fix --budget {longer / 60:.0f}m waits longer for the plan"
        )
    if resolution.outcome == "unanswered":
        return Refusal(
            f"{resolution.reason}, so no dry run can show what would change; run it by hand: "
            f"{shlex.join(resolution.command)}"
        )
    if not (resolution.changes or resolution.cleared):
        return Refusal("the installer's dry run would change nothing")
    return [
        InstallPackages(
            Path(resolution.environment),
            Path(resolution.copy),
            resolution.lock,
            resolution.installer,
            resolution.cleared,
            tuple(_why(resolution)),
        )
    ]


def _why(resolution: Resolution) -> Iterator[str]:
    for kind, packages in (
        ("upgraded", resolution.up),
        ("downgraded", resolution.down),
        ("added", resolution.added),
        ("removed", resolution.dropped),
        ("reinstalled", resolution.again),
        ("unchanged", resolution.keeps),
        ("no configured index offers it, so it stays as it is", (resolution.left_out,)),
    ):
        if any(packages):
            yield f"{kind}: {listed(packages, _SHOWN)}"


def _where_from(resolution: Resolution) -> str:
    """Return how to name an index or folder that has the package.

    Both the dry run and the installation read these variables.
    """
    prefix = "PIP" if "-m" in resolution.command else "UV"
    local = _LOCAL_TORCH.fullmatch(resolution.not_offered)
    index = f"https://download.pytorch.org/whl/{local[1]}" if local else "URL"
    return (
        f"Name an index that has it (export {prefix}_EXTRA_INDEX_URL={index}), or the folder with the "
        f"wheel that it was installed from (export {prefix}_FIND_LINKS=FOLDER), then run verl-doctor "
        f"fix again. The command will be: {shlex.join(resolution.command)}"
    )

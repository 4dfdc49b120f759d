"""ENV103: a variable is set that no installed package reads."""

from __future__ import annotations

import re
from collections.abc import Iterator

from verl_doctor.checks.shared.variables import Place, in_use, misspelt, owner_of, unread
from verl_doctor.checks.variables._variable_examples import in_shell, setting
from verl_doctor.checks.variables._variable_history import what_became_of
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.installed.trees import VllmTree
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.variables.variable_readers import Reading, VariableRead, VariableReaders
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Example, Finding, check

# Labels of images (NCCL_VERSION), and what Kubernetes sets for each service (VLLM_SERVICE_HOST).
_LABEL = re.compile(r".*_(VERSION|COMMIT|SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)")
_NEW = Reading(name="VLLM_MY_SWITCH", owner="vllm")
_BUILD = Reading(
    name="VLLM_USE_PRECOMPILED",
    owner="vllm",
    declared=VariableRead(package="vllm", path="/env/vllm/envs.py", line=620),
)


def _examples() -> list[Example]:
    return [
        Example(
            "a package reads it",
            setting(
                Reading(
                    name="VLLM_PORT",
                    owner="vllm",
                    readers=(VariableRead(package="vllm", path="/env/vllm/envs.py", line=9),),
                )
            ),
        ),
        Example(
            "it was removed, which another rule reports", setting(Reading(name="VLLM_USE_V1", owner="vllm"))
        ),
        Example(
            "an image states its version", in_shell(Reading(name="NCCL_VERSION", owner="libnccl"), "2.27.5-1")
        ),
        Example(
            "a misspelling, which another rule reports",
            setting(Reading(name="VLLM_PROT", owner="vllm", near="VLLM_PORT")),
        ),
        Example("no known reader", setting(_NEW), expect="no code of vLLM 0.15.1 reads VLLM_MY_SWITCH"),
        Example(
            "vLLM only needs it to be built", setting(_BUILD), expect="declares VLLM_USE_PRECOMPILED, but"
        ),
    ]


@check("ENV103", severity="warning", examples=_examples)
def variable_unread(
    readers: VariableReaders,
    variables: Variables,
    launch: Launch | Unknown,
    vllm: VllmTree | Unknown,
    packages: Packages | Unknown,
) -> Iterator[Finding]:
    """A variable is set that no installed package reads.

    ## Why it matters

    It looks like a setting but does nothing here: it belongs to another release, to a package that is not
    installed, or to no program at all. verl-doctor searches the Python sources of all packages that could
    read it, and the names in their compiled files. A launch script that uses the variable itself counts as a
    reader. A program of your own that is not installed cannot be found.

    ## How to fix

    Remove it, unless a program of your own reads it.
    """
    for reading, found in in_use(readers, variables, launch):
        if misspelt(reading) or what_became_of(reading.name) or _is_label(reading.name, found):
            continue
        who = owner_of(reading, vllm, packages)
        message = (
            f"{who} declares {reading.name}, but no installed code reads it"
            if reading.declared
            else f"no code of {who} reads {reading.name}"
        )
        written = any(place.location is not None for place in found)
        weighs = written and not reading.declared and not reading.name.startswith("VERL_")
        yield unread(
            readers,
            reading,
            found,
            message,
            wanted=f"{reading.near} is the nearest name that is read" if reading.near else "",
            remedy="remove it, unless a program of your own reads it",
            severity=None if weighs else "info",
        )


def _is_label(name: str, found: list[Place]) -> bool:
    """Whether the variable is only a label, set by an image or a cluster rather than for an effect."""
    return _LABEL.fullmatch(name) is not None and all(place.location is None for place in found)

"""ENV101: a variable is set that is no longer read."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.variables import in_use, owner_of, unread
from verl_doctor.checks.variables._variable_examples import in_shell, setting
from verl_doctor.checks.variables._variable_history import what_became_of
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.installed.trees import VllmTree
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.variables.variable_readers import Reading, VariableRead, VariableReaders
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Example, Finding, check

_BACKEND = "VLLM_ATTENTION_BACKEND"
_READ = Reading(
    name=_BACKEND,
    owner="vllm",
    readers=(VariableRead(package="vllm", path="/env/vllm/attention/selector.py", line=37),),
)
_UNKNOWN = Reading(name="SGLANG_X", owner="sglang", unclear="sglang was not found in this environment")


def _examples() -> list[Example]:
    return [
        Example("this vLLM reads it", setting(_READ, "FLASH_ATTN", vllm="0.12.0")),
        Example("the package that would read it is not installed", setting(_UNKNOWN)),
        Example("nothing has ever read it", setting(Reading(name="VLLM_MY_SWITCH", owner="vllm"))),
        Example(
            "vLLM no longer reads it",
            setting(Reading(name=_BACKEND, owner="vllm"), "FLASH_ATTN"),
            expect=(
                "VLLM_ATTENTION_BACKEND has no effect: vLLM 0.15.1 does not read it; vLLM 0.14.1 was the last"
            ),
        ),
        Example(
            "Ray never read it",
            in_shell(Reading(name="RAY_num_prestart_python_workers", owner="ray")),
            expect="not a setting of Ray",
        ),
    ]


@check("ENV101", severity="warning", examples=_examples)
def variable_removed(
    readers: VariableReaders,
    variables: Variables,
    launch: Launch | Unknown,
    vllm: VllmTree | Unknown,
    packages: Packages | Unknown,
) -> Iterator[Finding]:
    """A variable is set that is no longer read.

    ## Why it matters

    A workaround from an older release can stay in a launch script for years. It no longer has an effect,
    which goes unnoticed: vLLM before 0.17.0 silently ignores unknown variables, and later releases log one
    warning among hundreds of lines. Whatever the variable was set for, such as the attention backend, is now
    decided elsewhere.

    ## How to fix

    Remove it. If something replaced it, the finding names the replacement. `verl-doctor fix --select ENV101`
    shows the edit, which comments the line out; `verl-doctor fix --apply` makes it. If the variable is set in
    your shell, unset it there and where it comes from: `~/.bashrc`, the container image or the job's
    template.
    """
    for reading, found in in_use(readers, variables, launch):
        gone = what_became_of(reading.name)
        if gone is None:
            continue
        yield unread(
            readers,
            reading,
            found,
            f"{reading.name} has no effect: {owner_of(reading, vllm, packages)} does not read it; {gone.why}",
            remedy="; ".join(filter(None, ("remove it", gone.instead))),
            fix="variable-removed",
        )

"""ENV102: nothing reads a variable that is set, but a variable with a similar name is read."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.variables import in_use, misspelt, unread
from verl_doctor.checks.variables._variable_examples import in_shell, setting
from verl_doctor.checks.variables._variable_history import what_became_of
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.variables.variable_readers import Reading, VariableReaders
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Example, Finding, check

_TYPO = Reading(name="VLLM_ATENTION_BACKEND", owner="vllm", near="VLLM_ATTENTION_BACKEND")


def _examples() -> list[Example]:
    return [
        Example("no similar name exists", setting(Reading(name="VLLM_MY_SWITCH", owner="vllm"))),
        Example(
            "another word is not a misspelling",
            setting(Reading(name="VLLM_LOG_LEVEL", owner="vllm", near="VLLM_LOGGING_LEVEL")),
        ),
        Example(
            "it has a history of its own",
            setting(Reading(name="VLLM_USE_V1", owner="vllm", near="VLLM_USE_V2")),
        ),
        Example(
            "a letter is missing", setting(_TYPO, "FLASH_ATTN"), expect="did you mean VLLM_ATTENTION_BACKEND"
        ),
        Example(
            "and in the shell", in_shell(_TYPO, "FLASH_ATTN"), expect="did you mean VLLM_ATTENTION_BACKEND"
        ),
    ]


@check("ENV102", severity="warning", examples=_examples)
def variable_misspelt(
    readers: VariableReaders, variables: Variables, launch: Launch | Unknown
) -> Iterator[Finding]:
    """Nothing reads a variable that is set, but a variable with a similar name is read.

    ## Why it matters

    Programs do not report unknown variables, except for vLLM 0.17.0 and later, which log a line about them.
    The job runs without the intended effect.

    ## How to fix

    Correct the name. `verl-doctor fix --select ENV102` shows the corrected line. `verl-doctor fix --apply
    --unsafe` writes it; that is unsafe because the variable then starts to have an effect.
    """
    for reading, found in in_use(readers, variables, launch):
        if not misspelt(reading) or what_became_of(reading.name) is not None:
            continue
        yield unread(
            readers,
            reading,
            found,
            f"nothing reads {reading.name}; did you mean {reading.near}, which is read?",
            wanted=reading.near,
            remedy=f"write {reading.near} if that is what you meant",
            fix="variable-misspelt",
        )

"""ENV107: it could not be determined whether anything reads some of the variables."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.variables import places
from verl_doctor.checks.variables._variable_examples import in_shell, setting
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.variables.variable_readers import Reading, VariableRead, VariableReaders
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import counted, listed

_SHOWN = 3
_READ = Reading(
    name="NCCL_DEBUG",
    owner="libnccl",
    readers=(VariableRead(package="libnccl.so.2", path="/env/nvidia/nccl/lib/libnccl.so.2"),),
)
_UNCLEAR = Reading(name="NCCL_DEBUG", owner="libnccl", unclear="no libnccl.so was found in this environment")


def _examples() -> list[Example]:
    return [
        Example("its reader was found", setting(_READ, "INFO")),
        Example(
            "nothing reads it, which other rules report", setting(Reading(name="VLLM_MINE", owner="vllm"))
        ),
        Example(
            "the package that would read it is not installed", in_shell(_UNCLEAR, "INFO"), expect="NCCL_DEBUG"
        ),
    ]


@check("ENV107", severity="info", examples=_examples)
def variable_unclear(
    readers: VariableReaders, variables: Variables, launch: Launch | Unknown
) -> Iterator[Finding]:
    """Whether anything reads some of the variables could not be determined.

    ## Why it matters

    The other rules do not check these variables. The package that would read them is not in this environment,
    or their names appear only in a list or are put together when a program runs.

    ## How to fix

    Nothing needs to be fixed. Examine the environment that has the package, for instance on the nodes with
    GPUs.
    """
    unclear = [
        reading
        for reading in readers.variables
        if not reading.readers and reading.unclear and places(reading.name, variables, launch)
    ]
    if unclear:
        names = listed((reading.name for reading in unclear), _SHOWN)
        yield Finding(
            (
                f"it could not be determined whether {counted(len(unclear), 'variable')} "
                f"{'is' if len(unclear) == 1 else 'are'} read: {names}"
            ),
            Evidence("; ".join(f"{reading.name}: {reading.unclear}" for reading in unclear)),
            subject=Subject("variable", ", ".join(sorted(reading.name for reading in unclear))),
        )

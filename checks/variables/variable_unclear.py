"""ENV107: it is unknown whether some variables are read."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.variables import places
from verl_doctor.checks.variables._variable_examples import in_shell, setting
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.variables.variable_readers import Reader, Reading, VariableReaders
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import counted, listed

_SHOWN = 3
_READ = Reading("NCCL_DEBUG", "libnccl", (Reader("libnccl.so.2", "/env/nvidia/nccl/lib/libnccl.so.2"),))
_UNCLEAR = Reading("NCCL_DEBUG", "libnccl", unclear="no libnccl.so was found in this environment")


@check(
    "ENV107",
    severity="info",
    examples=lambda: [
        Example("its reader was found", setting(_READ, "INFO")),
        Example("nothing reads it, which other rules report", setting(Reading("VLLM_MINE", "vllm"))),
        Example("who would read it is not here", in_shell(_UNCLEAR, "INFO"), expect="NCCL_DEBUG"),
    ],
)
def variable_unclear(
    readers: VariableReaders, variables: Variables, launch: Launch | Unknown
) -> Iterator[Finding]:
    """Whether some variables are read could not be determined.

    ## Why it matters

    The other rules do not judge these: the package that would read them is not in this environment, or
    the name is only listed somewhere, or put together when a program runs.

    ## How to fix

    Nothing needs to be fixed. Look at the environment that has the package, such as the one on the nodes with GPUs.
    """
    unclear = [
        reading
        for reading in readers.variables
        if not reading.readers and reading.unclear and places(reading.name, variables, launch)
    ]
    if unclear:
        names = listed((reading.name for reading in unclear), _SHOWN)
        yield Finding(
            f"whether {counted(len(unclear), 'variable')} {'is' if len(unclear) == 1 else 'are'} read could not be determined: {names}",
            Evidence("; ".join(f"{reading.name}: {reading.unclear}" for reading in unclear)),
            subject=Subject("variable", ", ".join(sorted(reading.name for reading in unclear))),
        )

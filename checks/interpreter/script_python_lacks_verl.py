"""PY114: the script starts the job with an interpreter that does not have verl or torch."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.collectors.variables.script_python import ScriptPython
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Location, Subject, check

_SYSTEM = ("/usr/bin/python3", "/home/me/run.sh", 3)


def _examples() -> list[Example]:
    return [
        Example("another environment with verl", (ScriptPython(*_SYSTEM),)),
        Example(
            "the system's interpreter",
            (ScriptPython(*_SYSTEM, "verl"),),
            "/usr/bin/python3, which the script starts, does not have verl",
        ),
    ]


@check("PY114", phase="import", examples=_examples, since="0.2")
def script_python_lacks_verl(python: ScriptPython) -> Iterator[Finding]:
    """The script starts the job with an interpreter that does not have verl or torch.

    ## Why it matters
    A path such as `/usr/bin/python3` names one interpreter, whatever environment is active. The job ends at
    once: `No module named 'verl'`.

    ## How to fix
    Write `python3`, and activate the environment before, or name the environment's own `bin/python3`.
    """
    if python.lacks:
        yield Finding(
            f"{python.python}, which the script starts, does not have {python.lacks}",
            Evidence(found=f"no {python.lacks}", wanted=python.lacks, read_from=python.python),
            location=Location(python.path, python.line),
            remedy=(
                "write python3 and activate the environment first, or name the bin/python3 of the environment"
            ),
            subject=Subject("package", python.lacks),
            stops=(EVERY_JOB,),
        )

"""PY100: the target's Python could not be queried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from verl_doctor.checks.shared.interpreter_examples import PYTHON
from verl_doctor.toolkit.collectors.installed.interpreter import SOUND_WHEN_ISOLATED, Interpreter
from verl_doctor.toolkit.facts import Broken, Unknown, UnknownKind
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Subject, check

_SILENT_FOR_EVER = (Interpreter, Unknown("/env/bin/python did not respond within 10 s"))
_BROKEN_FROM_OUTSIDE = (
    Interpreter,
    Unknown(
        f"/env/bin/python failed: no encodings; {SOUND_WHEN_ISOLATED}, so ...", kind="sound when isolated"
    ),
)
_TRY_IT = "run it by hand with -c pass, or choose another one: verl-doctor check --python PATH/TO/bin/python"
_FIND_IT = (
    "run it by hand with -v -c pass: the last import before the failure is to blame; or unset PYTHONPATH "
    "and PYTHONHOME"
)
_REMEDIES: Mapping[UnknownKind, str] = {
    "sound when isolated": _FIND_IT,
}


def _looking_broke(interpreter: Interpreter | Unknown) -> Unknown | None:
    """The doctor's own failure, which proves nothing about the interpreter."""
    return interpreter if isinstance(interpreter, Broken) else None


def _examples() -> list[Example]:
    return [
        Example("the interpreter answers", (PYTHON,)),
        Example("the interpreter hangs", (_SILENT_FOR_EVER,), "did not respond within 10 s"),
        Example("a module loaded at its start fails", (_BROKEN_FROM_OUTSIDE,), SOUND_WHEN_ISOLATED),
    ]


@check("PY100", phase="import", applies=_looking_broke, examples=_examples)
def interpreter_unusable(interpreter: Interpreter | Unknown) -> Iterator[Finding]:
    """The target's Python could not be queried.

    ## Why it matters

    Everything that is installed is seen through this interpreter. One that hangs or fails at a one-line
    program stops every job as well: a home folder on a dead network share, a `sitecustomize` or `.pth`
    file that raises, a virtual environment whose base interpreter was removed.

    ## How to fix

    If it works in isolated mode (`-I -S`, which is tried too), a `.pth` file, a `sitecustomize` or a
    `PYTHON...` variable is to blame: run the interpreter by hand with `-v -c pass` and look at the last
    import. Otherwise recreate the environment, or name another interpreter with `--python`.
    """
    if isinstance(interpreter, Unknown):
        yield Finding(
            f"the target's Python could not be queried: {interpreter.reason}",
            Evidence(found=interpreter.reason, wanted="a response from the interpreter"),
            remedy=_REMEDIES.get(interpreter.kind, _TRY_IT),
            stops=(EVERY_JOB,),
            subject=Subject("interpreter", "python"),
        )

"""CFG127: a path of the job begins with a variable that is not set."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.launch_examples import SCRIPT
from verl_doctor.toolkit.collectors.launch.hollow_paths import HollowPath, HollowPaths
from verl_doctor.toolkit.collectors.launch.launch import COMMAND_LINE, Word
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Location, Subject, check
from verl_doctor.toolkit.text import listed

_KEY = "data.train_files"
_WORD = Word(f"{_KEY}=/gsm8k/train.parquet", SCRIPT, 7, f"{_KEY}=$DATA_DIR/gsm8k/train.parquet")
_FOUND = HollowPaths((HollowPath(_KEY, "/gsm8k/train.parquet", ("DATA_DIR",), _WORD),))


@check(
    "CFG127",
    phase="workers",
    requires=("CFG116",),
    examples=lambda: [
        Example("every variable has a value", (HollowPaths(),)),
        Example("an unset variable", (_FOUND,), "data.train_files is /gsm8k/train.parquet, which does not exist: DATA_DIR is set neither here nor in the script"),
    ],
    since="0.2",
)  # fmt: skip
def path_begins_with_nothing(paths: HollowPaths) -> Iterator[Finding]:
    """A path of the job begins with an unset variable.

    ## Why it matters
    The shell replaces an unset variable with nothing: `$DATA_DIR/train.parquet` becomes `/train.parquet`,
    which the job misses only when its workers read it. With `set -u` at the top of a script, the shell stops
    instead.

    ## How to fix
    Set the variable in the script, or `export` it in the shell from which the job starts, and check there.
    """
    for path in paths.paths:
        names = listed(path.names, 3)
        are = "is" if len(path.names) == 1 else "are"
        yield Finding(
            f"{path.key} is {path.path}, which does not exist: {names} {are} set neither here nor in the script",
            Evidence(found=path.word.written, wanted=f"a value of {names}", read_from=path.word.path),
            location=Location(path.word.path, None if path.word.path == COMMAND_LINE else path.word.line),
            remedy=f"set {names} in the script, or export it before the job is started",
            subject=Subject("setting", path.key),
            stops=(EVERY_JOB,),
        )

"""CFG127: a path of the job begins with a variable that is not set."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TypedDict

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.checks.shared.corrections import healed, without_value
from verl_doctor.checks.shared.launch_examples import FILES, SCRIPT
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.roles import is_read
from verl_doctor.toolkit.collectors.launch.hollow_paths import HollowPath, HollowPaths, variables_of
from verl_doctor.toolkit.collectors.launch.launch import (
    COMMAND_LINE,
    VARIABLE,
    Launch,
    LostAssignment,
    Word,
)
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import (
    EVERY_JOB,
    Correction,
    Evidence,
    Example,
    Finding,
    Location,
    Phase,
    Subject,
    check,
)
from verl_doctor.toolkit.text import listed

_KEY = "data.train_files"
_WORD = Word(
    text=f"{_KEY}=/gsm8k/train.parquet", path=SCRIPT, line=7, written=f"{_KEY}=$DATA_DIR/gsm8k/train.parquet"
)
_NUMBER = Word(text="trainer.nnodes=", path=SCRIPT, line=8, written="trainer.nnodes=$NNODES")
_PROCESSES = Word(text="--nproc_per_node=", path=SCRIPT, line=7, written="--nproc_per_node=$NGPU")
_OF_TORCHRUN = re.compile(r"--(?:nnodes|nproc[-_]per[-_]node|node[-_]rank|master[-_]port|max[-_]restarts)=")
_NAMES = {"actor_rollout_ref.model.path": "a model", "model.path": "a model", "data.train_files": "a table"}
_NOT_KNOWN = Unknown("not needed")
_FOUND = HollowPaths((HollowPath(key=_KEY, path="/gsm8k/train.parquet", names=("DATA_DIR",), word=_WORD),))


def _examples() -> list[Example]:
    return [
        Example("every variable has a value", (HollowPaths(),)),
        Example(
            "an empty text",
            (
                HollowPaths(),
                *configured(),
                Launch(FILES, hollow=(replace(_NUMBER, text="trainer.project_name="),)),
            ),
        ),
        Example(
            "a number that is empty",
            (HollowPaths(), *configured(), Launch(FILES, hollow=(_NUMBER,))),
            "trainer.nnodes is empty, but must be a number: NNODES is set neither here nor in the script",
        ),
        Example(
            "a model that is empty",
            (
                HollowPaths(),
                *configured(),
                Launch(
                    FILES,
                    hollow=(
                        Word(
                            text="actor_rollout_ref.model.path=",
                            path=SCRIPT,
                            line=8,
                            written="actor_rollout_ref.model.path=$MODEL",
                        ),
                    ),
                ),
            ),
            (
                "actor_rollout_ref.model.path is empty, but must name a model: MODEL is set neither here "
                "nor in the script"
            ),
        ),
        Example(
            "a number of torchrun's that is empty",
            (HollowPaths(), Launch(FILES, hollow=(_PROCESSES,))),
            "torchrun gets no number after --nproc_per_node=: NGPU is set neither here nor in the script",
        ),
        Example(
            "an address of torchrun's that is empty",
            (HollowPaths(), Launch(FILES, hollow=(replace(_PROCESSES, text="--rdzv_endpoint="),))),
        ),
        Example(
            "a key that is a variable, which braces have made longer",
            (
                HollowPaths(),
                Launch(FILES, hollow=(Word(text="=1", path=SCRIPT, line=8, written="$T{epochs,steps}=1"),)),
            ),
            "$T{epochs,steps}=1 becomes =1, which names no setting: T is set",
        ),
        Example(
            "a variable that is not exported",
            (HollowPaths(lacking=(replace(_WORD, text=f"{_KEY}=${{oc.env:DATA_DIR}}/train.parquet"),)),),
            "data.train_files needs the variable DATA_DIR, which the job does not have",
        ),
        Example(
            "blanks around the sign of an assignment",
            (replace(_FOUND, spaced=(LostAssignment(name="DATA_DIR", path=SCRIPT, line=2),)),),
            "DATA_DIR is set neither here nor in the script",
        ),
        Example(
            "a variable that is not exported to the shell of the command",
            (replace(_FOUND, not_exported=(LostAssignment(name="DATA_DIR", path=SCRIPT, line=2),)),),
            "the script sets DATA_DIR and does not export it",
        ),
        Example(
            "an unset variable",
            (_FOUND,),
            (
                "data.train_files is /gsm8k/train.parquet, which does not exist: DATA_DIR is set neither "
                "here nor in the script"
            ),
        ),
    ]


@check("CFG127", phase="workers", requires=("CFG116",), examples=_examples, since="0.2")
def path_begins_with_nothing(
    paths: HollowPaths, configuration: Configuration | Unknown, launch: Launch | Unknown
) -> Iterator[Finding]:
    """A path of the job begins with an unset variable, or a number is one.

    ## Why it matters
    The shell replaces an unset variable with nothing: `$DATA_DIR/train.parquet` becomes `/train.parquet`,
    which the job misses only when its workers read it, and a number becomes an empty text. With `set -u` at
    the top of a script, the shell stops instead.

    ## How to fix
    Set the variable in the script, or `export` it in the shell from which the job starts, and check there.
    """
    for path in paths.paths:
        names = listed(path.names, 3)
        yield Finding(
            f"{path.key} is {path.path}, which does not exist: {_unset(path.names, paths)}",
            Evidence(found=path.word.written, wanted=f"a value of {names}", read_from=path.word.path),
            location=Location(path.word.path, None if path.word.path == COMMAND_LINE else path.word.line),
            subject=Subject("setting", path.key, ",".join(path.names)),
            stops=(EVERY_JOB,),
            **_set(path.names, paths),
        )
    for word in paths.lacking:
        key, names = _key_of(word), listed(variables_of(word), 3)
        yield Finding(
            f"{key} needs the variable {names}, which the job does not have",
            Evidence(found=word.written, wanted=f"a value of {names}", read_from=word.path),
            location=Location(word.path, None if word.path == COMMAND_LINE else word.line),
            remedy=f"export {names} in the script: a variable that is only set stays in the shell",
            subject=Subject("setting", key, ",".join(dict.fromkeys(variables_of(word)))),
            stops=(EVERY_JOB,),
            fix=None if word.path == COMMAND_LINE else "exported-variable",
        )
    for word in launch.hollow if isinstance(launch, Launch) else ():
        unset = tuple(dict.fromkeys(VARIABLE.findall(word.written)))
        problem = _problem(word, configuration) if unset and not word.conditional else ""
        if problem:
            yield Finding(
                f"{problem}: {_unset(unset, paths)}",
                Evidence(found=word.written, wanted=f"a value of {listed(unset, 3)}", read_from=word.path),
                location=Location(word.path, None if word.path == COMMAND_LINE else word.line),
                subject=Subject("setting", _key_of(word), ",".join(unset)),
                stops=(EVERY_JOB,),
                phase=_phase(word.text or ""),
                **_set(unset, paths, word, configuration),
            )


def _unset(names: tuple[str, ...], paths: HollowPaths) -> str:
    """Return why the command does not have these variables, in words."""
    are = "is" if len(names) == 1 else "are"
    if _exportable(names, paths):
        return f"the script sets {listed(names, 3)} and does not export {'it' if are == 'is' else 'them'}"
    return f"{listed(names, 3)} {are} set neither here nor in the script"


def _exportable(names: tuple[str, ...], paths: HollowPaths) -> bool:
    return {*names} <= {line.name for line in paths.not_exported}


class _Set(TypedDict, total=False):
    """The remedy of a finding, and its fix."""

    remedy: str
    fix: str
    correction: Correction


def _set(
    names: tuple[str, ...],
    paths: HollowPaths,
    word: Word | None = None,
    configuration: Configuration | Unknown = _NOT_KNOWN,
) -> _Set:
    """How the variables get a value. A number that would be empty gets verl's default."""
    lines = {line.name: line for line in paths.spaced if line.name in names}
    if len(lines) == len(names):
        wanted = " and ".join(f"{name}= without blanks (line {line.line})" for name, line in lines.items())
        return {"remedy": f"write {wanted}: bash takes the name for a program", "fix": "assignment-joined"}
    if _exportable(names, paths):
        return {
            "remedy": f"export {listed(names, 3)} in the script: the command runs in another shell",
            "fix": "exported-variable",
        }
    found: _Set = {"remedy": f"set {listed(names, 3)} in the script, or export it before the job is started"}
    if word is None or isinstance(configuration, Unknown) or not configuration.has(_key_of(word)):
        return found
    return {**found, **healed("CFG127", without_value(configuration, _key_of(word)))}


def _key_of(word: Word) -> str:
    return (word.text or "").partition("=")[0].lstrip("+") or word.written


def _phase(text: str) -> Phase:
    if _OF_TORCHRUN.fullmatch(text):
        return "import"
    return "workers" if text.endswith("=") else "composition"


def _problem(word: Word, configuration: Configuration | Unknown) -> str:
    """What is wrong with a word whose variables are empty; "" if it may be right."""
    text = word.text or ""
    if text.startswith("="):
        return f"{word.written} becomes {text}, which names no setting"
    if _OF_TORCHRUN.fullmatch(text):
        return f"torchrun gets no number after {text}"
    match = re.fullmatch(r"\+{0,2}([\w.]+)=", text)
    if match is None or isinstance(configuration, Unknown):
        return ""
    default = configuration.default(match[1])
    is_number = isinstance(default, (int, float)) and not isinstance(default, bool)
    wanted = "be a number" if is_number else f"name {_NAMES[match[1]]}" if match[1] in _NAMES else ""
    return f"{match[1]} is empty, but must {wanted}" if wanted and is_read(configuration, match[1]) else ""

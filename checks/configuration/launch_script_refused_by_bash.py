"""CFG116: bash stops in the launch script, or Ray cannot read its runtime_env."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.corrections import Healed, healed
from verl_doctor.checks.shared.launch_examples import GOOD, SCRIPT
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch, ScriptError
from verl_doctor.toolkit.collectors.launch.wrappers.programs import PYTHON
from verl_doctor.toolkit.rule import (
    EVERY_JOB,
    Correction,
    Evidence,
    Example,
    Finding,
    Location,
    Rewrite,
    Subject,
    check,
)
from verl_doctor.toolkit.sources.shell.hurdle import Hurdle

_OF_DEEPSPEED = {
    "--num_gpus": "--nproc_per_node",
    "--num_nodes": "--nnodes",
    "--module": "-m",
    "--master_port": "--master_port",
    "--master_addr": "--master_addr",
}
_FIXES: dict[Hurdle, str] = {
    "status": "failure-allowed",
    "nothing found": "nothing-found-allowed",
    "startup file": "startup-file-optional",
    "alias": "aliases-expanded",
    "blank": "assignment-joined",
    "output folder": "output-folder-made",
}
_REMEDIES: dict[Hurdle, str] = {
    "status": "write || true behind the command on line {error.line}",
    "nothing found": "write || true behind line {error.line}, if the script is to go on without a file",
    "alias": "write shopt -s expand_aliases before the alias {error.name}",
    "startup file": "write [ ! -e {error.name} ] || before the command on line {error.line}",
    "blank": "write {error.name}= without blanks on line {error.line}",
    "output folder": "create the folder before line {error.line}: mkdir -p {error.name}",
}
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_SOURCE_OF_VERL = re.compile(r"(?:[\w./-]*/)?(verl/(?:\w+/)*\w+)\.py")
_QUOTE = ScriptError(path=SCRIPT, line=4, message="unexpected EOF while looking for matching `\"'")
_YAML = ScriptError(path="/home/me/env.yaml", line=4, message="this is invalid YAML: line 4")
_BRANCH = ScriptError(path=SCRIPT, line=9, message="syntax error: unexpected end of file")


def _examples() -> list[Example]:
    return [
        Example("bash accepts the script", (GOOD,)),
        Example("a quote", (replace(GOOD, refused=(_QUOTE,)),), "looking for matching"),
        Example(
            "a runtime_env",
            (Launch(((_YAML.path, "runtime_env"),), refused=(_YAML,)),),
            "Ray cannot read this runtime_env",
        ),
        Example(
            "an unset variable",
            (replace(GOOD, stopped=(ScriptError(path=SCRIPT, line=3, message="RUN: unbound variable"),)),),
            "bash stops here: RUN: unbound variable",
        ),
        Example(
            "an interpolation of Hydra's",
            (replace(GOOD, stopped=(ScriptError(path=SCRIPT, line=3, message="${a.b}: bad substitution"),)),),
            "bash stops here: ${a.b}: bad substitution",
        ),
        Example(
            "no arguments",
            (
                replace(
                    GOOD,
                    stopped=(
                        ScriptError(
                            path=SCRIPT,
                            line=3,
                            message="exit 1: the script is started without arguments",
                            lacks_arguments=True,
                        ),
                    ),
                ),
            ),
            "bash stops here: exit 1: the script is started without arguments",
        ),
        Example(
            "a module as a file",
            (
                replace(
                    GOOD,
                    command=Command(
                        module="verl.trainer.sft_trainer", words=(), path=SCRIPT, line=3, names=("torchrun",)
                    ),
                    stopped=(
                        ScriptError(
                            path=SCRIPT, line=3, message="python: can't open file verl.trainer.sft_trainer"
                        ),
                    ),
                ),
            ),
            "bash stops here: python: can't open file verl.trainer.sft_trainer",
        ),
        Example("a branch", (replace(GOOD, refused=(_BRANCH,)),), "unexpected end of file"),
    ]


@check("CFG116", phase="shell", examples=_examples)
def launch_script_refused_by_bash(launch: Launch) -> Iterator[Finding]:
    """Bash stops in the launch script, or Ray cannot read its runtime_env.

    ## Why it matters
    Bash runs everything above the error, perhaps a `ray start`, and stops there. The job does not start, or
    starts without the settings that follow.

    A script that parses can still end before training starts: under `set -u` at an unset variable, under `set
    -e` at a `cd` or `source` of something missing, at `((N++))` while N is 0, or at a function whose last
    command fails, and at `${a.b}`, a Hydra interpolation without single quotes. A script that requires
    arguments ends without them.

    ## How to fix
    Close the quote or the bracket that begins at the line named, or end the `if` or loop. `bash -n run.sh`
    checks a script without running it. Give the variable a value or a default (`${NAME:-}`), correct the
    path, or put the interpolation into single quotes. Write `N=$((N + 1))`. Name the arguments of a script
    after it: `verl-doctor check run.sh ARG...`. Check in the shell from which the job starts.
    """
    for error in launch.refused:
        if dict(launch.files).get(error.path) == "runtime_env":
            yield Finding(
                f"Ray cannot read this runtime_env: {error.message}",
                Evidence(found=error.message, wanted="YAML with env_vars: and the variables below it"),
                location=Location(error.path, error.line or None),
                remedy="correct the file at that line or the one above it",
                subject=Subject("file", error.path),
            )
            continue
        yield Finding(
            f"bash cannot parse the script: {error.message}",
            Evidence(
                found=f"{error.path}: line {error.line}: {error.message}", read_from=f"bash -n {error.path}"
            ),
            location=Location(error.path, error.line),
            remedy=_remedy(error),
            subject=Subject("file", error.path),
        )

    for error in launch.stopped:
        yield Finding(
            f"bash stops here: {error.message}",
            Evidence(
                found=error.message,
                wanted="a script that reaches the training command",
                read_from=f"{error.path}:{error.line}",
            ),
            location=Location(error.path, None if error.lacks_arguments else error.line),
            remedy=_remedy_of_stop(error, launch.command),
            subject=Subject("file", error.path, str(error.line)),
            stops=(EVERY_JOB,),
            **_healed(error, launch.command),
        )


def _remedy_of_stop(error: ScriptError, command: Command | None) -> str:
    if error.interpolation:
        return f"write \\{error.interpolation}, so that Hydra gets it"
    if error.lacks_arguments:
        return (
            f"name the arguments after the script: verl-doctor check {error.path.rpartition('/')[2]} ARG1 "
            "ARG2"
        )
    if error.hurdle == "source" and (module := _module_of(error, command)):
        return f"write -m {module}: without -m, Python opens a file"
    if module := _module_with_ending(error, command):
        return f"write {module}: -m takes a module, without the ending of its file"
    remedy = _REMEDIES.get(error.hurdle, "correct line {error.line}")
    return remedy.format(error=error)


def _healed(error: ScriptError, command: Command | None) -> Healed:
    """What the line would have to contain, if its meaning is clear."""
    if error.interpolation:
        return {"fix": "interpolation-for-hydra"}
    if error.extended:
        return {"fix": "default-for-unset"}
    if error.hurdle in _FIXES:
        return {"fix": _FIXES[error.hurdle]}
    if command is None or (command.path, command.line) != (error.path, error.line) or not command.names:
        return {}
    starter = command.names[-1].rpartition("/")[2]
    if correction := _with_m(error, command) if error.hurdle == "source" else None:
        return healed("CFG116", correction)
    if module := _module_with_ending(error, command):
        rewrite = Rewrite(error.name, module, Location(command.path, command.line))
        return healed("CFG116", Correction("", (rewrite,), "-m takes a module, not a file"))
    if starter == "torchrun":
        return healed("CFG116", _without_python(command) or _with_hyphens(command))
    return healed("CFG116", _by_torchrun(command)) if starter == "deepspeed" else {}


def _module_of(error: ScriptError, command: Command | None) -> str:
    """Return the module that the command names as a file; "" if that is not certain."""
    if command is None or (command.path, command.line) != (error.path, error.line) or not command.names:
        return ""
    starter = command.names[-1].rpartition("/")[2]
    if not (starter == "torchrun" or PYTHON.fullmatch(starter)):
        return ""
    if any(word.text in ("-m", "--module") for word in command.launcher):
        return ""
    if _MODULE.fullmatch(error.name) and not error.name.endswith(".py"):
        return error.name
    of_verl = _SOURCE_OF_VERL.fullmatch(error.name)
    return of_verl[1].replace("/", ".") if of_verl else ""


def _module_with_ending(error: ScriptError, command: Command | None) -> str:
    """Return the module that stands behind -m with the ending of its file; "" elsewhere."""
    if command is None or error.hurdle != "source" or error.name != command.module:
        return ""
    module = error.name.removesuffix(".py")
    behind = [word.text for word in command.launcher][-1:] in (["-m"], ["--module"])
    return module if behind and module != error.name and _MODULE.fullmatch(module) else ""


def _with_m(error: ScriptError, command: Command | None) -> Correction | None:
    module = _module_of(error, command)
    if not module or command is None:
        return None
    rewrite = Rewrite(error.name, f"-m {module}", Location(command.path, command.line))
    return Correction("", (rewrite,), "without -m, Python opens a file")


def _without_python(command: Command) -> Correction | None:
    """Torchrun starts Python itself, and takes a Python in front of the module for a source file."""
    last = [word for word in command.launcher if PYTHON.fullmatch((word.text or "").rpartition("/")[2])][-1:]
    rewrites = tuple(Rewrite(word.text or "", None, Location(word.path, word.line)) for word in last)
    return Correction("", rewrites, "torchrun starts Python itself") if rewrites else None


def _with_hyphens(command: Command) -> Correction | None:
    """A text program has made a long dash of the two hyphens of an option."""
    rewrites = [
        Rewrite(word.text, f"--{word.text[1:]}", Location(word.path, word.line))
        for word in command.launcher
        if word.text and word.text[0] in "\u2012\u2013\u2014\u2015\u2212" and len(word.text) > 2
    ]
    return Correction("", tuple(rewrites), "options begin with two hyphens") if rewrites else None


def _by_torchrun(command: Command) -> Correction | None:
    """DeepSpeed's launcher in the words of torchrun; None if it has options without an equivalent."""
    at = Location(command.path, command.line)
    rewrites = [Rewrite(command.names[-1], "torchrun", at)]
    for word in command.launcher:
        option, equals, value = (word.text or "-").partition("=")
        new = _OF_DEEPSPEED.get(option, "" if option.startswith("-") else option)
        if not new:
            return None
        if new != option:
            rewrites.append(Rewrite(word.text or "", f"{new}{equals}{value}", Location(word.path, word.line)))
    effect = "torchrun starts the processes, with which verl's programs are written to run"
    return Correction("", tuple(rewrites), effect=effect)


def _remedy(error: ScriptError) -> str:
    if "looking for matching" in error.message:
        return f"close what begins on line {error.line}"
    if "unexpected end of file" in error.message:
        return "end the if, the loop or the function that is still open there"
    return f"correct line {error.line} or the one above it"

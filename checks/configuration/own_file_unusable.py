"""CFG126: a file of the user's own that the job names is missing or unusable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from verl_doctor.checks.shared.configuration import configured, place
from verl_doctor.checks.shared.corrections import LEAVE_OUT, healed, settings
from verl_doctor.checks.shared.made_first import unless_made
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.own_files import OwnFile, OwnFiles, Trouble
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Correction, Evidence, Example, Finding, Subject, check

_TOOLS = "actor_rollout_ref.rollout.multi_turn.tool_config_path"
_CLASS = "data.custom_cls.name"
_RESUME = "trainer.resume_from_path"
_RESUME_MODE = "trainer.resume_mode"
_REWARD = "custom_reward_function.path"
_FILE = "/home/me/mine.py"
_WORDS: Mapping[Trouble, tuple[str, str]] = {
    "missing": ("{path} does not exist", "an existing file or folder"),
    "no Python": ("{path} {error}", "a file that Python can read"),
    "contents": ("{path} {error}", "what verl's code requires of that file"),
    "no path": ("{key} is {path}, not a path", "the path of a file"),
    "no such name": ("{path} has no {name}", "the name of a class in that file"),
    "no name": ("{key} is null, but {path} needs the name of a class", "the name of a class in that file"),
    "no data set": (
        "{name} in {path} is not a Dataset: it has no base class",
        "a subclass of torch.utils.data.Dataset",
    ),
}


def _examples() -> list[Example]:
    return [
        Example("all of them exist", (*configured(), OwnFiles())),
        Example(
            "a file of tools",
            (
                *configured(f"+{_TOOLS}=/home/me/tools.yaml"),
                OwnFiles(
                    (OwnFile(key=_TOOLS, path="/home/me/tools.yaml", trouble="missing", phase="first batch"),)
                ),
            ),
            "/home/me/tools.yaml does not exist",
        ),
        Example(
            "a syntax error",
            (
                *configured(),
                OwnFiles(
                    (
                        OwnFile(
                            key="data.custom_cls.path",
                            path=_FILE,
                            trouble="no Python",
                            phase="workers",
                            error="cannot be parsed: SyntaxError",
                        ),
                    )
                ),
            ),
            "cannot be parsed",
        ),
        Example(
            "a reward without a score",
            (
                *configured(f"+{_REWARD}={_FILE}"),
                OwnFiles(
                    (
                        OwnFile(
                            key=_REWARD,
                            path=_FILE,
                            trouble="contents",
                            phase="first batch",
                            error="defines f, which returns nothing",
                        ),
                    )
                ),
            ),
            "/home/me/mine.py defines f, which returns nothing",
        ),
        Example(
            "a truth value",
            (
                *configured(f"+{_TOOLS}=True"),
                OwnFiles((OwnFile(key=_TOOLS, path="True", trouble="no path", phase="first batch"),)),
            ),
            "multi_turn.tool_config_path is True, not a path",
        ),
        Example(
            "a file without a class",
            (
                *configured(f"+{_CLASS}=null"),
                OwnFiles((OwnFile(key=_CLASS, path=_FILE, trouble="no name", phase="workers"),)),
            ),
            "data.custom_cls.name is null, but /home/me/mine.py needs the name of a class",
        ),
        Example(
            "another class",
            (
                *configured(f"+{_CLASS}=Mine"),
                OwnFiles(
                    (OwnFile(key=_CLASS, path=_FILE, trouble="no such name", phase="workers", name="Mine"),)
                ),
            ),
            "has no Mine",
        ),
        Example(
            "a class without a base",
            (
                *configured(f"+{_CLASS}=Mine"),
                OwnFiles(
                    (OwnFile(key=_CLASS, path=_FILE, trouble="no data set", phase="workers", name="Mine"),)
                ),
            ),
            "Mine in /home/me/mine.py is not a Dataset",
        ),
    ]


@check("CFG126", requires=("CFG101", "CFG102", "CFG103"), examples=_examples, since="0.2")
def own_file_unusable(
    configuration: Configuration, own: OwnFiles, launch: Launch | Unknown
) -> Iterator[Finding]:
    """A file that the job's settings name is missing or unusable.

    ## Why it matters
    verl opens data set classes, tools, agent loops, rewards and the checkpoint to resume from only when it
    needs them, some of them after the model is loaded. The job stops there. What they define must have the
    expected form: agent loops are a list of names and classes, a tool has a schema or a docstring with types,
    a reward function accepts the arguments that verl passes by name and returns a number, or a dictionary
    with a `score`. Code that is always reached, at import or in the reward function, must not raise: a name
    that nothing defines, a file or a variable that does not exist.

    ## How to fix
    Correct the path or the name. Paths are resolved as verl resolves them: without expanding `~`, from the
    folder in which the job starts.
    """
    for file in own.files:
        word = configuration.override_of(file.key)
        message, wanted = _WORDS[file.trouble]
        found = Finding(
            message.format(path=file.path, name=file.name, error=file.error, key=file.key),
            Evidence(found=word.text if word else f"{file.key}={configuration.get(file.key)}", wanted=wanted),
            location=place(word) if word else None,
            remedy=f"correct {file.path}"
            if file.trouble == "contents"
            else f"correct {file.key}" + ("" if file.trouble == "no path" else f", or {file.path}"),
            subject=Subject("setting", file.key, file.name),
            stops=(EVERY_JOB,),
            phase=file.phase,
            **healed("CFG126", _correction(configuration, file)),
        )
        yield unless_made(found, file.path, launch) if file.trouble == "missing" else found


def _correction(configuration: Configuration, own_file: OwnFile) -> Correction | None:
    """The file that may have been meant.

    For an unusable checkpoint to resume from, it is the last checkpoint, or else a new start.
    """
    if own_file.beside:
        effect = f"the job reads {own_file.beside} instead of {own_file.path}"
        values: dict[str, object] = {own_file.instead or own_file.key: own_file.beside}
        if own_file.instead:
            values[own_file.key] = LEAVE_OUT
        return settings(configuration, values, effect=effect)
    if own_file.near:
        return settings(
            configuration,
            {own_file.key: own_file.near},
            effect=f"the job uses {own_file.near} instead of {own_file.name}",
        )
    if own_file.key == _RESUME and own_file.trouble in ("missing", "contents", "no path"):
        effect = "the job resumes from its last checkpoint if there is one, and starts over otherwise"
        named = {_RESUME: LEAVE_OUT} if configuration.override_of(_RESUME) else {}
        return settings(configuration, {**named, _RESUME_MODE: "auto"}, effect=effect)
    return None

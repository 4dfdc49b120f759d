"""CFG122: the job's reward function is not there."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import configured, place
from verl_doctor.checks.shared.corrections import healed, settings
from verl_doctor.checks.shared.made_first import unless_made
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.reward_function import RewardFunction
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Correction, Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import listed

_SECTION = "custom_reward_function"
_SHOWN = 6
_TREE = {_SECTION: {"path": None, "name": "compute_score"}}
_JOB = configured(f"{_SECTION}.path=/home/me/reward.py", tree=_TREE)
_THERE = RewardFunction(
    key=_SECTION,
    path="/home/me/reward.py",
    name="compute_score",
    state="there",
    defined=True,
    names=("compute_score",),
)


def _examples() -> list[Example]:
    return [
        Example("file and function exist", (*_JOB, _THERE)),
        Example(
            "a star import may define the function",
            (
                *_JOB,
                RewardFunction(
                    key=_SECTION, path="/home/me/reward.py", name="f", state="there", defined=None
                ),
            ),
        ),
        Example(
            "no file",
            (
                *_JOB,
                RewardFunction(
                    key=_SECTION, path="/home/me/reward.py", name="compute_score", state="missing"
                ),
            ),
            "/home/me/reward.py does not exist",
        ),
        Example(
            "a path that begins with ~, which verl does not expand",
            (
                *_JOB,
                RewardFunction(key=_SECTION, path="~/reward.py", name="compute_score", state="unexpanded"),
            ),
            "verl does not expand ~",
        ),
        Example(
            "a relative path, perhaps of another folder",
            (*_JOB, RewardFunction(key=_SECTION, path="reward.py", name="compute_score", state="unseen")),
            "reward.py does not exist",
        ),
        Example(
            "another name in the file",
            (
                *_JOB,
                RewardFunction(
                    key=_SECTION,
                    path="/home/me/reward.py",
                    name="compute_score",
                    state="there",
                    defined=False,
                    names=("compute_scores",),
                ),
            ),
            "has no compute_score; did you mean compute_scores?",
        ),
    ]


@check("CFG122", requires=("CFG101", "CFG102", "CFG103"), examples=_examples, since="0.2")
def reward_function_missing(
    configuration: Configuration, reward: RewardFunction, launch: Launch | Unknown
) -> Iterator[Finding]:
    """The job's reward function does not exist.

    ## Why it matters
    verl loads the file in its reward workers, after the model is loaded. verl 0.7 and later report the error
    as a failed prompt: `Custom module file not found`, `Object not found in module`, or only `no
    materializable trajectories`.

    ## How to fix
    Correct `custom_reward_function.path`, an absolute path that every node can read, and
    `custom_reward_function.name`, the function in that file (`compute_score` unless it is set).
    """
    key = f"{reward.key}.path"
    message, wanted = "", "a file"
    if reward.state == "unexpanded":
        message, remedy = (
            f"{reward.path} does not exist: verl does not expand ~",
            "write the full path, or use $HOME",
        )
    elif reward.state != "there":
        message, remedy = (
            f"the reward function's file {reward.path} does not exist",
            f"correct {key}, or create the file",
        )
    elif reward.defined is False:
        key, wanted = f"{reward.key}.name", f"a function {reward.name} in {reward.path}"
        near = next(iter(difflib.get_close_matches(reward.name, reward.names, 1)), "")
        message = f"{reward.path} has no {reward.name}" + (f"; did you mean {near}?" if near else "")
        remedy = (
            f"set {key} to a function of the file: {listed(reward.names, _SHOWN)}"
            if reward.names
            else f"define {reward.name} in {reward.path}"
        )
    if not message:
        return
    word = configuration.override_of(key) or configuration.override_of(f"{reward.key}.path")
    certain = reward.state != "unseen"
    found = Finding(
        message,
        Evidence(
            found=word.text if word else f"{key}={configuration.get(key)}",
            wanted=wanted,
            read_from=reward.path,
        ),
        location=place(word) if word else None,
        remedy=remedy,
        severity=None if certain else "warning",
        subject=Subject("setting", key),
        stops=(EVERY_JOB,) if certain else (),
        phase="start",
        **healed("CFG122", _correction(configuration, reward)),
    )
    yield unless_made(found, reward.path, launch) if reward.state == "missing" else found


def _correction(configuration: Configuration, reward: RewardFunction) -> Correction | None:
    """The intended function, or the only function in the file; the folder that `~` stands for."""
    if reward.expanded and reward.expanded != reward.path:
        why = f"verl does not expand ~, which stands for {reward.expanded.partition(reward.path[1:])[0]}"
        return settings(configuration, {f"{reward.key}.path": reward.expanded}, why, "")
    if reward.state == "missing" and reward.beside:
        effect = f"the job reads {reward.beside} instead of {reward.path}"
        return settings(configuration, {f"{reward.key}.path": reward.beside}, effect=effect)
    if reward.defined is not False:
        return None
    near = difflib.get_close_matches(reward.name, reward.names, 1) or (
        reward.names if len(reward.names) == 1 else ()
    )
    return settings(configuration, {f"{reward.key}.name": near[0]}) if near else None

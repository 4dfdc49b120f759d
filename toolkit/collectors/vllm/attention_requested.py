"""Where the user names an attention backend for vLLM: a variable, or an option that verl passes to vLLM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.launch_values import (
    LaunchValues,
    given,
    launch_values,
    text_of,
)
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown, collector

VARIABLE = "VLLM_ATTENTION_BACKEND"
OPTIONS = ("attention_backend", "attention_config.backend", "mm_encoder_attn_backend")
"""The names that vLLM's engine arguments have had for it. The last one applies to the vision tower only."""

_ENGINE = "actor_rollout_ref.rollout.engine_kwargs.vllm."


@dataclass(frozen=True)
class RequestedBackend:
    """One place that names a backend.

    `by` is the variable or the engine argument, `written` the user's spelling, `name` the backend. `path` is
    empty for a variable of the shell that verl-doctor runs in.
    """

    by: str
    name: str
    written: str
    path: str = ""
    line: int = 0


@dataclass(frozen=True)
class AttentionAsked:
    """Every place that counts. For a variable that is set twice, only the value that the job would see."""

    places: tuple[RequestedBackend, ...]

    def by(self, *names: str) -> tuple[RequestedBackend, ...]:
        """Return the places that use this variable or these options."""
        return tuple(place for place in self.places if place.by in names)


@collector(kept=True)
def attention_requested(
    variables: JobVariables, launch: Launch | Unknown, configuration: Configuration | Unknown
) -> AttentionAsked | Unknown:
    """Find the variable in this shell and in the launch files, and the options in the command."""
    values = launch_values(launch, configuration)
    rollout = text_of(values, "actor_rollout_ref.rollout.name")
    if rollout and "vllm" not in rollout:
        return Absent(f"the rollout is {rollout}, not vLLM")
    places = (*_variable(variables), *_options(values), *_flags(launch))
    if not places:
        return Absent("nothing names an attention backend, so vLLM chooses one")
    return AttentionAsked(places)


def _variable(variables: JobVariables) -> Iterator[RequestedBackend]:
    """Yield the value that vLLM would find, which runs in the workers."""
    if value := variables.get(VARIABLE):
        yield RequestedBackend(VARIABLE, value, VARIABLE, *variables.places.get(VARIABLE, ("", 0)))


def _options(values: LaunchValues) -> Iterator[RequestedBackend]:
    for option in OPTIONS:
        entry = given(values, _ENGINE + option)
        if entry is not None and entry.text:
            yield RequestedBackend(option, entry.text, entry.key, entry.path, entry.line)
    whole = given(values, f"{_ENGINE}attention_config")
    if whole is not None and isinstance(whole.value, dict) and whole.value.get("backend"):
        yield RequestedBackend(
            "attention_config.backend", str(whole.value["backend"]), whole.key, whole.path, whole.line
        )


def _flags(launch: Launch | Unknown) -> Iterator[RequestedBackend]:
    """Yield `--attention-backend NAME` and its variants, for commands that start vLLM itself."""
    words = launch.command.words if isinstance(launch, Launch) and launch.command else ()
    flags = {f"--{option.replace('_', '-')}": option for option in OPTIONS}
    for index, word in enumerate(words):
        flag, equals, value = (word.text or "").partition("=")
        if flag in flags:
            following = words[index + 1].text if index + 1 < len(words) else ""
            if name := value if equals else following or "":
                yield RequestedBackend(flags[flag], name, flag, word.path, word.line)

"""Finds the phase in which an exception was raised, from the stacks of the driver and the raising process.

It is the phase of the job.

The names are those of verl 0.2 to 0.9.1 (trainer/main_ppo.py, trainer/sft_trainer.py, trainer/ppo,
workers/rollout), of Hydra 1.3, Ray and vLLM. If the frames do not decide it, the name of the process does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from verl_doctor.toolkit.logs.lines import Line
from verl_doctor.toolkit.logs.python_errors import Frame, Raised
from verl_doctor.toolkit.rule import Phase

_VERL = re.compile(r"(?:^|/)verl/")
_MAIN = re.compile(r"/(?:main_\w+|trainer/\w*sft_trainer)\.py$")
_HYDRA = re.compile(r"(?:^|/)(?:hydra|omegaconf)/")
_STANDARD = re.compile(r"/lib/python3[^/]*/(?!(?:site|dist)-packages/)|^<frozen ")
_RAY_INIT = re.compile(r"(?:^|/)ray/(?:_private/worker|util/client/\w+|client_builder)\.py$")
_ENGINE = re.compile(
    r"(?:^|/)(?:vllm|sglang)/|(?:^|/)verl/workers/rollout/(?:llm_server|replica|\w+/\w*server\w*)\.py$"
)
_ENGINE_STARTS = frozenset(
    {
        "launch_server",
        "launch_servers",
        "_initialize_llm_servers",
        "_initialize_rollout_servers",
        "init_hybrid",
        "init_standalone",
    }
)
_ENGINE_NAME = re.compile(
    r"(?:vLLM|SGLang)\w*(?:Server|Replica)|^(?:EngineCore|APIServer|Worker(?:_[TPD]P\d+\w*)?)[ _]"
)
_UPDATES = frozenset(
    {
        "update_actor",
        "update_critic",
        "_update_actor",
        "_update_critic",
        "update_policy",
        "train_mini_batch",
        "train_batch",
    }
)
_VALIDATES = frozenset({"_validate", "validate"})
_SAVES = frozenset({"save_checkpoint", "_save_checkpoint"})
_TRAINS = frozenset({"fit", "training_step"})
_IMPORTS = re.compile(r"(?:import|from) ")
FIRST_STEP = "Training Progress:"
"""The progress bar of verl's trainers, which appears when the first step begins.

It does not begin at 0 % in a resumed job.
"""

_JOINS = re.compile(r"cluster ID from GCS|[Cc]onnect to GCS|waiting for GCS")
_NO_MODULE = re.compile(
    r": No module named \S+$|: Error while finding module specification for |^Fatal Python error: init"
)
_LAUNCHER = re.compile(r"(?:^|/)torch/distributed/run\.py$")


def phase_of(error: Raised, end: Raised | None, *, trains: bool) -> Phase | None:
    """Return the phase in which an exception and all those that follow from it were raised.

    None if nothing shows it.

    `end` is the exception that ended the driver; `trains` is whether the first step had already begun.
    """
    chain = [*error.chain, *([] if end is None or end is error else end.chain)]
    frames = [frame for raised in chain for frame in raised.frames]
    names = [error.line.process, *(_remote_name(raised.message) for raised in chain)]
    found = _of_training(frames, trains=trains) or _of_start(frames, names)
    return found or _of_driver(error)


def phase_of_line(line: Line) -> Phase | None:
    """Return the phase of a line if its process raised nothing or its traceback is missing."""
    if _NO_MODULE.search(line.text):
        return "import"
    if not line.process and _JOINS.search(line.text):
        return "ray"
    return "engine" if _ENGINE_NAME.search(line.process) else None


def phase_of_process(name: str) -> Phase | None:
    """Return the phase in which a named process starts."""
    return _of_start((), (name,))


def _remote_name(message: str) -> str:
    """Return the actor or task whose error Ray forwards."""
    _, found, name = message.partition("ray::")
    return name.partition("(")[0] if found else ""


def _of_training(frames: Sequence[Frame], *, trains: bool) -> Phase | None:
    """Return the job's phase once everything had started.

    In verl 0.8 and older, the task runner validates before it starts anything.
    """
    verl = {frame.function for frame in frames if _VERL.search(frame.path)}
    if "validate_config" in verl:
        return "validation"
    if not verl & _TRAINS and not trains:
        return None
    if verl & _SAVES:
        return "checkpoint"
    if verl & _UPDATES:
        return "first update"
    tests = any(frame.function in _VALIDATES and "trainer" in frame.path for frame in frames)
    return "first validation" if tests else "first batch"


def _of_start(frames: Sequence[Frame], names: Sequence[str]) -> Phase | None:
    """Return the phase of what starts in separate processes: the engine or the workers."""
    starts = any(frame.function in _ENGINE_STARTS and _VERL.search(frame.path) for frame in frames)
    # verl 0.9 resumes after the engine's start, before it trains.
    starts |= any(
        frame.function == "_load_checkpoint" and "/verl/trainer/ppo/" in frame.path for frame in frames
    )
    if starts or any(_ENGINE.search(frame.path) for frame in frames if frame.function != "<module>"):
        return "engine"
    if any(_ENGINE_NAME.search(name) for name in names):
        return "engine"
    if any(frame.function in {"run_sft", "main_task"} for frame in frames):
        return "workers"
    return "workers" if any(name and not name.startswith("rank") for name in names) else None


def _of_driver(error: Raised) -> Phase | None:
    """Return the phase of what the program itself does before it starts other processes."""
    frames = [frame for raised in error.chain for frame in raised.frames]
    if any(frame.function == "init" and _RAY_INIT.search(frame.path) for frame in frames):
        return "ray"
    if any(frame.function == "config_from_args" and _LAUNCHER.search(frame.path) for frame in frames):
        return "import"
    own = [frame for frame in frames if not _STANDARD.search(frame.path)]
    inside = [
        at
        for at, frame in enumerate(own)
        if frame.function in {"run_job", "_run_hydra"} and _HYDRA.search(frame.path)
    ]
    app = own[inside[-1] + 1 :] if inside else own
    if any(_MAIN.search(frame.path) and frame.function in {"main", "run_ppo"} for frame in app):
        return "validation"
    is_hydra = any(raised.type.startswith(("hydra.", "omegaconf.")) for raised in error.chain)
    is_hydra |= any(frame.function == "compose_config" and _HYDRA.search(frame.path) for frame in app)
    if inside or is_hydra:
        return "composition" if is_hydra or all(_HYDRA.search(frame.path) for frame in app) else None
    return "import" if any(map(_imports, error.chain)) else None


def _imports(raised: Raised) -> bool:
    """Return whether an exception was raised while a module was imported.

    The first frame of a script is a module too.
    """
    own = [frame for frame in raised.frames if not _STANDARD.search(frame.path)]
    return any(
        frame.function == "<module>" and (number or frame.path.endswith("/__init__.py"))
        for number, frame in enumerate(own)
    ) or bool(own and own[-1].function == "<module>" and _IMPORTS.match(own[-1].code))

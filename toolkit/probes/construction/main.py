"""Runs the stages in sequence and prints a line of JSON after a token as each begins and ends.

`run` builds one job. `serve` imports what takes long, and then builds each job that it is sent in a process
of its own.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Container, Iterator, Mapping
from typing import Any, NoReturn

from verl_doctor.toolkit.probes.construction import assumed_gpu
from verl_doctor.toolkit.probes.construction.isolation import (
    Isolation,
    NoNetworkError,
    RefusedError,
    caches,
    home_in,
)
from verl_doctor.toolkit.probes.construction.job import Job, composed
from verl_doctor.toolkit.probes.construction.problems import causes, described, files_of_user, needs_network
from verl_doctor.toolkit.probes.construction.stages import (
    STAGES,
    NotHereError,
    NotJudgedError,
    NotNeededError,
    OverTimeError,
    Stage,
)

# The modules that declare stages, in the order in which the stages run.
_MODULES = ("program", "model", "data", "rollout", "prompts", "reward", "training", "world", "algorithm")
_QUIET = {NotHereError: "not there", NotNeededError: "not needed", NotJudgedError: "not judged"}
_PASSED = frozenset({"ok", "not needed"})
_CACHED_ROWS = "hf_datasets_cache"  # see `caches`: it grows with every job
_GRACE = 5.0  # seconds for a stage in C code, which cannot notice its time limit


# Modules whose import takes most of a construction's time. Importing one has no effect outside the process.
_SLOW = (
    "datasets",
    "peft",
    "ray",
    "torch.testing._internal.distributed.fake_pg",
    "transformers",
    "verl.trainer.main_ppo",
    "verl.trainer.ppo.v1",
    "verl.trainer.sft_trainer",
    "verl.workers.engine_workers",
    "verl.workers.rollout.vllm_rollout.vllm_async_server",
)
_PAUSE = 0.02  # seconds between two looks at a process


def run(token: str, request: Mapping[str, Any]) -> None:
    """Build the job, then exit immediately: what verl has started may hang at exit."""
    place = _Place(request)
    place.begin()
    place.build(token, request)


def serve(token: str, request: Mapping[str, Any]) -> None:
    """Build a job for each line of JSON on standard input: request, `token`, and `limit` in seconds.

    Each is built in a fork of this process, which has imported what takes long. The token's last event is
    `ended`, with the exit code of the fork, None if it had to be killed. The first line of output, after the
    token of `serve`, is `ready`.
    """
    place = _Place(request)
    place.begin()
    with _uncollected():  # nor do the forks copy its pages
        for name in _SLOW:
            with contextlib.suppress(Exception):  # the job that needs it reports the error
                importlib.import_module(name)
        with contextlib.suppress(Exception):
            _warm_up(request)
    before = set(os.listdir(place.private))  # noqa: PTH208 - names are enough
    _report(place.stream, token, event="ready")
    for line in sys.stdin.buffer:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            place.build(order["token"], {**request, **order})
        code = _ended(pid, order["limit"])
        place.tidy(before)
        _report(place.stream, order["token"], event="ended", code=code)
    os._exit(0)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Collect no garbage in the block, and never what it leaves behind.

    What an import creates lives until the process ends, and going through it again and again takes a fifth of
    the time of an import of verl and vLLM.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


def _report(stream: int, token: str, **event: Any) -> None:
    os.write(stream, f"\n{token}{json.dumps(event)}\n".encode())


def _warm_up(request: Mapping[str, Any]) -> None:
    """Compose a configuration, and look through the models of transformers.

    Composing fills the caches of the parsers of Hydra and OmegaConf.
    """
    from omegaconf import OmegaConf
    from transformers import AutoModelForImageTextToText

    added = request.get("config_added", "")
    OmegaConf.resolve(composed(request["config_folder"], request["config_name"], ["++any.key=1"], added))
    AutoModelForImageTextToText._model_mapping.keys()


def _ended(pid: int, limit: float) -> int | None:
    """Wait for a process, at most `limit` seconds. Return its exit code, None if it had to be killed."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(_PAUSE)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


class _Place:
    """Where jobs are built: the private folder, the variables, and the isolation of the process."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.private: str = request["private"]
        self.stream = os.dup(1)
        self._request = request
        self._home = os.environ.get("HOME") or os.path.expanduser("~")  # noqa: PTH111
        self._isolation = Isolation(self.private)

    def begin(self) -> None:
        """Isolate the process, and change to the job's folder."""
        request = self._request
        sys.dont_write_bytecode = True  # next to the user's files
        _into_file(f"{self.private}/output")
        os.environ.update(caches(self.private, os.environ))
        if request["environ"]:
            os.environ.update(request["environ"])
        _first_on_path(request["folder"], request["tree"])
        assumed_gpu.assume(self.private)
        tempfile.tempdir = None  # cached before
        self._isolation.begin()
        os.chdir(request["folder"])
        sys.argv = [request["module"]]
        for name in _MODULES:
            importlib.import_module(f"verl_doctor.toolkit.probes.construction.stage_{name}")

    def build(self, token: str, request: Mapping[str, Any]) -> NoReturn:
        """Build a job, and exit."""
        job = Job(
            module=request["module"],
            folder=request["folder"],
            private=self.private,
            config_folder=request["config_folder"],
            config_name=request["config_name"],
            overrides=request["overrides"],
            config_added=request.get("config_added", ""),
            launched=request.get("launched"),
        )
        options = request.get("skip", []), self._home, request.get("most"), request.get("until")
        Run(job, self._isolation, self.stream, token, *options).all()
        os._exit(0)

    def tidy(self, before: Container[str]) -> None:
        """Remove what a job has left in the private folder."""
        for name in os.listdir(self.private):  # noqa: PTH208 - names are enough
            if name not in before or name == _CACHED_ROWS:
                shutil.rmtree(os.path.join(self.private, name), ignore_errors=True)  # noqa: PTH118


class Run:
    """One pass over the stages.

    `skip` are those that ended an earlier pass, `most` is the time limit in seconds for any stage. The pass
    ends if the stage `until` does not succeed.
    """

    def __init__(
        self,
        job: Job,
        isolation: Isolation,
        stream: int,
        token: str,
        skip: list[str],
        home: str,
        most: float | None = None,
        until: str | None = None,
    ) -> None:
        self.job, self.isolation, self.skip = job, isolation, set(skip)
        self._most, self._until = most, until
        self._stream, self._token = stream, token
        self._private_home, self._home = json.dumps(home_in(job.private))[1:-1], json.dumps(home)[1:-1]
        self.states: dict[str, str] = {}

    def emit(self, **event: Any) -> None:
        """Print one complete event."""
        text = json.dumps(event).replace(
            self._private_home, self._home
        )  # printed text names the user's own home
        os.write(self._stream, f"\n{self._token}{text}\n".encode())

    def all(self) -> None:
        """Run all stages that can run."""
        for stage in STAGES.values():
            self._run_stage(stage)
            if stage.name == self._until and self.states[stage.name] not in _PASSED:
                return
        own = sorted(files_of_user(self.isolation.executed, self.job.folder))
        self.emit(event="whole", own=own, world=self.job.notes.get("world"))

    def _run_stage(self, stage: Stage) -> None:
        if stage.name in self.skip:
            self.states[stage.name] = "skipped"  # its dependents are not reached
            return
        missing = next((need for need in stage.needs if self.states.get(need) != "ok"), None)
        if missing is not None:
            ended = "not needed" if self.states.get(missing) == "not needed" else "not reached"
            self._end(stage.name, ended, 0.0, text=missing)
            return
        self.emit(event="begin", stage=stage.name, users=stage.users)
        begun = time.monotonic()
        more: dict[str, Any] = {}
        self.isolation.taken()
        self.job.notes.pop("key", None)
        seconds = min(stage.seconds, self._most or stage.seconds)
        with _Limit(seconds, lambda: self._over(stage, begun)):
            try:
                with _uncollected() if stage.imports else contextlib.nullcontext():
                    stage.run(self.job)
                state = "ok"
            except (KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:  # noqa: BLE001 - whatever it raises is the answer
                state, more = self._judged(error)
        self._end(stage.name, state, time.monotonic() - begun, **more)

    def _end(self, name: str, state: str, seconds: float, **more: Any) -> None:
        self.states[name] = state
        self.emit(event="end", stage=name, state=state, seconds=round(seconds, 2), **more)

    def _over(self, stage: Stage, begun: float) -> None:
        """End the process, because the stage does not react to its time limit."""
        self._end(stage.name, "hangs", time.monotonic() - begun)
        os._exit(3)

    def _judged(self, error: BaseException) -> tuple[str, dict[str, Any]]:
        """Return the state of a stage that ended in an exception, and its report."""
        for kind, state in _QUIET.items():
            if isinstance(error, kind):
                return state, {"text": str(error)}
        more = dict(described(error, self.job.folder))
        more["key"] = more["key"] or self.job.notes.get("key", "")
        refused = self.isolation.taken()
        if isinstance(error, OverTimeError):
            if refused:
                return "not judged", {**more, "text": f"{refused[-1]}, which is not done here"}
            return "hangs", more
        ours = any(isinstance(cause, (RefusedError, NoNetworkError)) for cause in causes(error))
        if refused:  # the refusal may have turned into another error
            return "not judged", {**more, "text": f"{refused[-1]}, which is not done here"}
        if ours or (self._denied(error) or needs_network(error)):
            why = "it needs the network" if needs_network(error) else "it writes outside a private folder"
            return "not judged", {**more, "text": f"{why}: {more['kind']}: {more['text'][:200]}"}
        return "breaks", more

    def _denied(self, error: BaseException) -> bool:
        """Return whether the kernel refused access to a file that is not ours."""
        return any(
            isinstance(cause, OSError)
            and cause.errno in (1, 13, 30)
            and cause.filename is not None
            and not self.isolation.is_ours(cause.filename)
            and os.access(os.path.dirname(os.path.abspath(os.fsdecode(cause.filename))), os.W_OK)  # noqa: PTH120
            for cause in causes(error)
        )


class _Limit:
    """A time limit around a stage: an exception in it, and `over` if that has no effect."""

    def __init__(self, seconds: float, over: Any) -> None:
        self._seconds = seconds
        self._watch = threading.Timer(seconds + _GRACE, over)
        self._watch.daemon = True

    def __enter__(self) -> None:
        signal.signal(signal.SIGALRM, _raise)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)
        self._watch.start()

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._watch.cancel()


def _raise(*_: object) -> None:
    raise OverTimeError


def _into_file(path: str) -> None:
    """Redirect the libraries' output to a file: the pipe is for events.

    Crash reports of the process go to the parent.
    """
    faulthandler.enable(os.fdopen(os.dup(2), "w"))
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)


def _first_on_path(folder: str, tree: str) -> None:
    """Put the job's folder first, as `python -m` does, and add the examined tree if Python would miss it."""
    sys.path[:] = [entry for entry in sys.path if entry not in ("", folder)]
    if tree not in map(os.path.realpath, sys.path):
        sys.path.insert(0, tree)
    sys.path.insert(0, folder)

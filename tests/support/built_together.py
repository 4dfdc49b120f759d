"""Builds several jobs in one process that has imported verl and vLLM, a fork for each: importing takes ten seconds, building two.

Run as a script, under the interpreter of the environment: a JSON object on standard input has the folder of the construction, and
for each job a request, a file for the answer, and its variables.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verl_doctor.toolkit.collectors.construction.construction import Construction

TOKEN = "verl-doctor test "
_PARENTS = ("verl_doctor", "verl_doctor.toolkit", "verl_doctor.toolkit.probes")
_OF_ONE_JOB = ("excerpt", "data", "hf_datasets_cache")  # folders in the private one, which all share
_LIMIT = 1800.0  # seconds on a busy machine; it computes for less than a minute


@dataclass(frozen=True)
class Order:
    """One job: its construction request, and the variables of its process, None for those of this one."""

    request: Mapping[str, Any]
    environ: Mapping[str, str] | None = None


def built(python: Path, requests: Mapping[str, Mapping[str, Any]], folder: Path) -> dict[str, Construction]:
    """Return the construction of each job."""
    found = together(python, {name: Order(request) for name, request in requests.items()}, folder)
    assert found.keys() == requests.keys(), requests.keys() - found.keys()
    return found


def together(
    python: Path, orders: Mapping[str, Order], folder: Path, environ: Mapping[str, str] | None = None
) -> dict[str, Construction]:
    """Return the construction of each finished job; one that hangs or crashes has none.

    `environ` is that of the importing process.
    """
    from verl_doctor.toolkit.probes import construct

    private = folder / "private"
    private.mkdir()
    jobs = {
        name: (dict(one.request), str(folder / f"{number}.answer"), one.environ)
        for number, (name, one) in enumerate(orders.items())
    }
    order = {
        "package": str(Path(construct.__file__).with_name("construction")),
        "private": str(private),
        "jobs": jobs,
    }
    words = [str(python), __file__]
    done = subprocess.run(
        words,
        check=False,
        input=json.dumps(order),
        stderr=subprocess.PIPE,
        text=True,
        timeout=_LIMIT,
        env=environ,
    )
    assert done.returncode == 0, done.stderr
    answers = {name: _read(Path(answer), request.get("until")) for name, (request, answer, _) in jobs.items()}
    return {name: answer for name, answer in answers.items() if answer is not None}


def _read(answer: Path, until: str | None) -> Construction | None:
    """Return the report of a process; None if it did not finish. It may have ended with the stage `until`."""
    from verl_doctor.toolkit.collectors.construction.child import events_of, stages_of
    from verl_doctor.toolkit.collectors.construction.construction import Construction
    from verl_doctor.toolkit.collectors.construction.world import read
    from verl_doctor.toolkit.machine import Output

    said = Output(0, answer.read_text() if answer.exists() else "", "", 0.0)
    events = events_of(said, TOKEN)
    last = events[-1] if events else {}
    if last.get("event") != "whole" and (last.get("event"), last.get("stage")) != ("end", until):
        return None
    stages = tuple(stages_of(events, said, 0.0))
    seconds = round(sum(stage.seconds for stage in stages), 2)
    return Construction(stages, seconds, tuple(last.get("own", ())), read(last.get("world")))


def main() -> None:
    """Import slow modules, and fork for each job."""
    order = json.load(sys.stdin)
    sys.path.pop(0)  # the folder of this file has packages called as libraries are
    for name in _PARENTS:
        parent = types.ModuleType(name)
        parent.__path__ = []
        sys.modules[name] = parent
    sys.modules[_PARENTS[-1]].__path__ = [str(Path(order["package"]).parent)]
    from verl_doctor.toolkit.probes.construction.isolation import caches

    os.environ.update(caches(order["private"], os.environ))
    gc.disable()
    _import_all()
    _compose(next(iter(order["jobs"].values()))[0])
    gc.freeze()  # the forks need not look through what is there already, nor copy its pages for that
    gc.enable()
    for request, answer, environ in order["jobs"].values():
        pid = os.fork()
        if pid == 0:
            if environ is not None:
                os.environ.clear()
                os.environ.update(environ)
            file = os.open(answer, os.O_WRONLY | os.O_CREAT, 0o600)
            os.dup2(file, 1)
            from verl_doctor.toolkit.probes.construction.main import run

            run(TOKEN, {"skip": [], **request, "private": order["private"]})
        os.waitpid(pid, 0)
        for name in _OF_ONE_JOB:
            shutil.rmtree(Path(order["private"], name), ignore_errors=True)


def _import_all() -> None:
    import datasets
    import peft
    import torch.testing._internal.distributed.fake_pg
    import verl.trainer.main_ppo
    import verl.trainer.ppo.v1
    import verl.workers.rollout.vllm_rollout.vllm_async_server
    from transformers import AutoModelForImageTextToText
    from vllm.model_executor.models import qwen2

    assert all((datasets, peft, torch, verl, qwen2))
    assert (
        AutoModelForImageTextToText._model_mapping.keys()
    )  # verl looks through it: that imports 150 modules


def _compose(request: Mapping[str, Any]) -> None:
    """Compose a configuration once: the grammar caches of Hydra and OmegaConf are kept for the forks."""
    from omegaconf import OmegaConf

    from verl_doctor.toolkit.probes.construction.job import composed

    places = request["config_folder"], request["config_name"]
    config = composed(*places, ["++any.key=1"], request.get("config_added", ""))
    if "actor_rollout_ref" in config:
        OmegaConf.resolve(config.actor_rollout_ref)


if __name__ == "__main__":
    main()

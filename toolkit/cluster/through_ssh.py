"""Requests the facts of hosts without Ray by ssh or srun: the same `probes.node`, sent through stdin."""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from verl_doctor.toolkit.cluster import node_reader
from verl_doctor.toolkit.cluster.node_parcel import Parcel
from verl_doctor.toolkit.cluster.node_request import ALONE, Sharing, Via
from verl_doctor.toolkit.cluster.node_response import NodeResponse
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes import node
from verl_doctor.toolkit.probes.cluster import NodeQuery, startable
from verl_doctor.toolkit.text import counted

_SIMULTANEOUS = 32  # hosts at a time; each is a process here, and a step in Slurm's accounting
_LATE = 3.0  # seconds after the node's own deadline
_LONGEST = 200  # characters of an error message


def command(via: Via, host: str, python: str, text: str, token: str) -> list[str]:
    """Return the local command that runs `text` there.

    It never prompts for a password: there may be a hundred hosts.
    """
    remote = [python, "-I", "-S", "-c", text, token]
    if via == "ssh":
        return ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", host, shlex.join(remote)]
    # --overlap: the job's own steps keep their resources, and this one needs none (Slurm 20.11 and newer).
    return ["srun", "--overlap", "--nodes=1", "--ntasks=1", "--quiet", f"--nodelist={host}", *remote]


def shown(via: Via, python: str) -> str:
    """Return the command for people, with placeholders for long parts."""
    return shlex.join(command(via, "HOST", python, "PROGRAM", "TOKEN"))


def host_responses(
    machine: Machine,
    hosts: Sequence[str],
    via: Via,
    python: str,
    parcel: Parcel,
    budget: float,
    watch: Callable[[str], None] = lambda _: None,
    *,
    sharing: Sharing = ALONE,
) -> Generator[NodeResponse, None, None]:
    """Yield each host as soon as it responds or fails.

    `python` is the interpreter's path there. `budget` is in seconds.
    """
    deadline = time.monotonic() + budget
    text = Path(node.__file__).read_text("utf-8")

    def query(host: str) -> NodeResponse:
        return _response(machine, host, via, python, text, parcel, deadline)

    waiting = [NodeQuery(host, host, sharing.of.get(host, ())) for host in hosts]
    running: dict[Future[NodeResponse], NodeQuery] = {}
    pool = ThreadPoolExecutor(min(_SIMULTANEOUS, len(hosts)))
    try:
        while waiting or running:
            for chosen in startable(waiting, running.values(), at_once=_SIMULTANEOUS, sharing=sharing.most):
                waiting.remove(chosen)
                running[pool.submit(query, chosen.node)] = chosen
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                del running[done]
                finished = len(hosts) - len(waiting) - len(running)
                watch(f"{finished} of {counted(len(hosts), 'node')} responded")
                yield done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _response(
    machine: Machine, host: str, via: Via, python: str, text: str, parcel: Parcel, deadline: float
) -> NodeResponse:
    begun = time.monotonic()
    left = deadline - begun
    if left <= 1:
        return NodeResponse(host, missing="it was not queried: the time was up")
    token = f"verl-doctor {secrets.token_hex(8)} "
    order = parcel.order(max(left - _LATE, 1.0), detached=False)
    response = ""
    try:
        with machine.open_dialogue(
            command(via, host, python, text, token), order, env=_home(machine), patience=1.0
        ) as dialogue:
            for line in dialogue.lines(deadline):
                _, found, rest = line.decode("ascii", "replace").partition(token)
                response = rest.strip() if found else response
                if found:
                    break
            last_error = dialogue.last_error
    except OSError as error:
        return NodeResponse(host, missing=f"{via} cannot be started: {error.strerror}")
    seconds = round(time.monotonic() - begun, 3)
    if response:
        facts, missing = node_reader.read(response)
        return NodeResponse(host, host, facts, missing, seconds)
    if time.monotonic() >= deadline:
        return NodeResponse(host, missing="it did not respond in time", seconds=seconds)
    response = last_error.removeprefix(f"{via}: ").replace(host, "HOST")[
        :_LONGEST
    ]  # one sentence for each cause
    return NodeResponse(host, missing=f"{via}: {response}", seconds=seconds)


def _home(machine: Machine) -> dict[str, str]:
    """Return the user's variables that ssh and srun need to find keys and settings in the home folder."""
    return {name: machine.environ[name] for name in ("HOME", "TMPDIR") if name in machine.environ}

"""The network variables of gloo, NCCL and vLLM, as the job's workers have them, and where they are set."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import THIS_SHELL, Launch, Setting, where_set
from verl_doctor.toolkit.collectors.variables.effective_environment import EffectiveEnvironment
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.machine import Machine

GLOO = "GLOO_SOCKET_IFNAME"
NCCL = "NCCL_SOCKET_IFNAME"
TENSORPIPE = "TP_SOCKET_IFNAME"
HOST_ADDRESS = "VLLM_HOST_IP"
ADAPTERS = "NCCL_IB_HCA"
NO_INFINIBAND = "NCCL_IB_DISABLE"
ADDRESS_INDEX = "NCCL_IB_GID_INDEX"
NAMES = (GLOO, NCCL, TENSORPIPE, HOST_ADDRESS, ADAPTERS, NO_INFINIBAND, ADDRESS_INDEX)

_LINE = re.compile(r"(NCCL_\w+)=(.*)")


@dataclass(frozen=True)
class VariableValue:
    """A variable and its value, None if unknown. `where` is what sets it: a file, "this shell", "the raylet".

    `path` and `line` are "" and 0 unless a file sets it. `everywhere`: the workers of all nodes receive it.
    """

    name: str
    value: str | None
    where: str = THIS_SHELL
    path: str = ""
    line: int = 0
    everywhere: bool = False


@dataclass(frozen=True)
class NetworkVariables:
    """The variables that are set.

    If the workers' value is unknown, there is an entry for each place that sets it for some process.
    """

    given: tuple[VariableValue, ...] = ()

    def of(self, name: str) -> tuple[VariableValue, ...]:
        """Return the places where a variable is set."""
        return tuple(given for given in self.given if given.name == name)


@collector(timeout=25, kept=True)
def network_variables(
    variables: Variables,
    launch: Launch | Unknown,
    environment: EffectiveEnvironment | Unknown,
    machine: Machine,
) -> NetworkVariables:
    """Take the variables that workers see; NCCL reads those set in no environment from its own files."""
    filed = {given.name: given for given in _of_nccl(machine)}
    found: list[VariableValue] = []
    for name in NAMES:
        written = [_given(setting) for setting in where_set(name, variables, launch)]
        seen = _seen(name, written, environment)
        found += seen or ([filed[name]] if name in filed else [])
    return NetworkVariables(tuple(found))


def _given(setting: Setting) -> VariableValue:
    path, line = (setting.path, setting.line) if setting.in_file else ("", 0)
    return VariableValue(setting.name, setting.value, setting.path, path, line, setting.reaches_workers)


def _seen(
    name: str, written: list[VariableValue], environment: EffectiveEnvironment | Unknown
) -> list[VariableValue]:
    """Return the place from which the workers have it; empty if they do not."""
    row = None if isinstance(environment, Unknown) else environment.get(name)
    if isinstance(environment, Unknown) or (row is not None and row.worker.undetermined):
        return written
    if row is None or row.worker.text is None:
        return []
    same = [given for given in written if given.value == row.worker.text]
    return same[:1] or [VariableValue(name, row.worker.text, row.path or row.decided_by, row.path, row.line)]


def _of_nccl(machine: Machine) -> Iterator[VariableValue]:
    """Yield settings in NCCL's files; the user's wins, blanks are kept (NVIDIA/nccl, src/misc/param.cc)."""
    named = machine.environ.get("NCCL_CONF_FILE")
    for path in ("/etc/nccl.conf", named or (f"{machine.home}/.nccl.conf" if machine.home else "")):
        for number, line in enumerate((machine.read(path) or "" if path else "").splitlines(), 1):
            match = _LINE.fullmatch(line)
            if match and match[1] in NAMES:
                yield VariableValue(match[1], match[2], path, path, number)

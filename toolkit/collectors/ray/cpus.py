"""How many CPUs the installed Ray would hand out on this node by default.

Ray counts CPUs in `get_num_cpus` of ray/_private/utils.py: those of the machine, or the values in a few
control group files that the function names. It considers neither the affinity, which Slurm sets for a job,
nor the groups below the mounted one (ray-project/ray#34846, #50474). So the files are read here as that Ray
would read them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from verl_doctor.toolkit.collectors.host.limits import HostLimits
from verl_doctor.toolkit.collectors.installed.result_cache import remembered
from verl_doctor.toolkit.collectors.installed.trees import LibraryTrees
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.python.source import Unreadable, parse_file
from verl_doctor.toolkit.system.cgroups import count_of_list

_QUOTA, _PERIOD, _MAX, _SET = (
    "cpu_quota_file_name",
    "cpu_period_file_name",
    "cpu_max_file_name",
    "cpuset_file_name",
)
_MACHINES_OWN = "RAY_USE_MULTIPROCESSING_CPU_COUNT"
# Names that a Ray with another way of counting would use.
_OTHER_WAYS = frozenset({"sched_getaffinity", "process_cpu_count", "cpu_affinity"})


@dataclass(frozen=True)
class RayCpus:
    """The CPUs that Ray would count here, and which `version` of Ray.

    `read_from` is the file, or the variable, that sets the number.
    """

    counted: int
    read_from: str
    version: str = ""


@dataclass(frozen=True)
class CpuFiles:
    """The files in which Ray looks up the CPUs of a container, by the parameter whose default they are."""

    named: Mapping[str, str]


@collector()
def ray_cpus(trees: LibraryTrees, limits: HostLimits, machine: Machine) -> RayCpus | Unknown:
    """Read which files the installed Ray uses, and those files."""
    tree = next((tree for tree in trees.trees if tree.module == "ray"), None)
    if tree is None:
        return Absent("Ray is not installed in this environment")
    if not limits.online:
        return Unknown("the number of this machine's CPUs is unknown")
    path = Path(tree.folder, "_private", "utils.py")
    cpu_files = remembered(CpuFiles, "", [path], partial(files_read, path))
    if isinstance(cpu_files, Unknown):
        return cpu_files
    files = cpu_files.named
    named = machine.environ.get("PYTHON_CPU_COUNT", "")
    whole = int(named) if named.isdigit() and int(named) else limits.online
    if machine.environ.get(_MACHINES_OWN):
        return RayCpus(whole, _MACHINES_OWN, tree.version)
    found = min(_cpu_limits(machine, files), default=None)
    if found is None:
        return RayCpus(whole, "/sys/devices/system/cpu/online", tree.version)
    return RayCpus(int(found[0]), found[1], tree.version)


def files_read(path: Path) -> CpuFiles | Unknown:
    """Return the files that this Ray reads."""
    tree = parse_file(path)
    if isinstance(tree, Unreadable):
        return Unknown(tree.reason)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    counting = [functions[name] for name in ("get_num_cpus", "_get_docker_cpus") if name in functions]
    named = {
        getattr(node, "attr", getattr(node, "id", ""))
        for function in counting
        for node in ast.walk(function)
        if isinstance(node, (ast.Attribute, ast.Name))
    }
    if len(counting) < 2 or named & _OTHER_WAYS:
        return Unknown("this Ray counts CPUs in an unknown way")
    arguments = counting[1].args
    values = [default.value if isinstance(default, ast.Constant) else None for default in arguments.defaults]
    files = {
        argument.arg: value
        for argument, value in zip(arguments.args[-len(values) :], values, strict=True)
        if isinstance(value, str)
    }
    if len(files) != len(arguments.args) or not {*files} <= {_QUOTA, _PERIOD, _MAX, _SET}:
        return Unknown("this Ray counts CPUs in an unknown way")
    return CpuFiles(files)


def _cpu_limits(machine: Machine, files: Mapping[str, str]) -> Iterator[tuple[float, str]]:
    """Yield the numbers that Ray takes from these files, each with its file.

    They are a quota of version 1 or else of 2, and a set.
    """
    texts = {name: (machine.read(path) or "").strip() for name, path in files.items()}
    quota, period = texts.get(_QUOTA, ""), texts.get(_PERIOD, "")
    if quota and period:
        name = _QUOTA
    else:
        name = _MAX
        quota, _, period = texts.get(_MAX, "").partition(" ")
    if quota.isdigit() and period.isdigit() and int(period):
        yield int(quota) / int(period), files[name]
    if listed := count_of_list(texts.get(_SET, "")):
        yield float(listed), files[_SET]

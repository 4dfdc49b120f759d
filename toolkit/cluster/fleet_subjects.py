"""What a cluster's nodes should share, read from a node's facts by kind and name of the subject.

A reader is a function of facts, like a rule. A node with an unknown fact is left out of the comparison.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.collectors.host.clock_offset import ClockOffset
from verl_doctor.toolkit.collectors.host.folders import Folders
from verl_doctor.toolkit.collectors.host.limits import HostLimits, Limit
from verl_doctor.toolkit.collectors.host.memory import HostMemory
from verl_doctor.toolkit.collectors.host.shared_memory import SharedMemory
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.model.job_files import JobFile, JobFiles
from verl_doctor.toolkit.collectors.model.sites import SitePlaces
from verl_doctor.toolkit.collectors.network.network import Network
from verl_doctor.toolkit.collectors.network.rdma import Rdma
from verl_doctor.toolkit.collectors.packages.records import Records
from verl_doctor.toolkit.collectors.ray.fleet import UNSEEN
from verl_doctor.toolkit.engine.collect import Facts
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.text import counted, in_bytes

_CLOCK = 1.0  # seconds

Values = Mapping[tuple[str, str], str]
"""A node's values, by kind and name of the subject."""

# Variables that a program on another node also needs, and those of them that name the node or its process.
COMPARED = re.compile(
    r"(?:CUDA_|FLASHINFER_|FLASH_ATTENTION_|GLOO_|HF_|NCCL_|NVSHMEM_|OMP_|PYTHON|PYTORCH_|RAY_"
    r"|TOKENIZERS_|TORCH|TRANSFORMERS_|TRITON_|TP_SOCKET_IFNAME|UCX_|VERL_|VLLM_|LD_LIBRARY_PATH"
    r"|LD_PRELOAD)"
)
OWN = re.compile(
    r"(?:VLLM_HOST_IP|VLLM_DP_RANK\w*|NCCL_HOSTID|CUDA_VISIBLE_DEVICES|CUDA_MPS_\w+|HF_TOKEN_PATH|"
    r"RAY_(?:ADDRESS|RAYLET_PID|NODE_\w+|WORKER_\w+|JOB_ID|CLIENT_\w+|INTERNAL_\w+|SESSION_\w+))"
)


@dataclass(frozen=True)
class Nearly:
    """Defines when two numbers count as equal: they differ by at most a share of the lower, or an amount."""

    part: float
    amount: float
    show: Callable[[float], str]

    def together(self, values: Iterable[str]) -> dict[str, str]:
        """Return, for each number as text, the common text of all numbers that count as equal to it."""
        groups: list[list[str]] = []
        for value in sorted(values, key=float):
            low = float(groups[-1][0]) if groups else 0
            if groups and float(value) - low <= max(self.amount, self.part * low):
                groups[-1].append(value)
            else:
                groups.append([value])
        return {value: self._shown(group[0], group[-1]) for group in groups for value in group}

    def _shown(self, low: str, high: str) -> str:
        ends = dict.fromkeys((self.show(float(low)), self.show(float(high))))
        return " to ".join(ends)


@dataclass(frozen=True)
class SubjectReader:
    """A reader of values, with the rules of their comparison.

    `among_a_kind`: nodes are compared only with nodes that have the same kind of GPUs. `lacking_counts`: the
    absence of the subject is a value. `nearly`: the values are numbers, and this defines which count as
    equal. `may_name`: if nearly every node has a different value, it names the node and is not compared.
    `weak`: nodes that differ only in this still agree.
    """

    read: Callable[..., Values]
    among_a_kind: bool = False
    lacking_counts: bool = True
    nearly: Nearly | None = None
    may_name: bool = False
    weak: bool = False


def gpus_of(facts: Facts) -> str:
    """Return the kind of a node: the names of its GPUs, "" if it has none."""
    gpus = facts.get(Gpus)
    if isinstance(gpus, Unknown):
        return "" if isinstance(gpus, Absent) else UNSEEN
    return ", ".join(sorted({device.name for device in gpus.devices}))


def _versions(packages: Packages) -> Values:
    return {
        ("package", distribution.name): distribution.version.partition("+")[0]
        for distribution in packages.distributions
    }


def _builds(packages: Packages) -> Values:
    """Return what may differ on a head without GPUs: builds for other hardware, and GPU-only packages."""
    return {("build", distribution.name): _build(distribution) for distribution in packages.distributions}


def _build(distribution: Distribution) -> str:
    local = distribution.version.partition("+")[2]
    return (
        " ".join(filter(None, (f"+{local}" if local else "", "editable" if distribution.editable else "")))
        or "plain"
    )


def read_edited_files(records: Records) -> Values:
    """Return the packages' files that were edited after installation."""
    return {
        ("edited file", f"{drift.package}: {_inside(drift.path)}"): drift.sha256[:12] or drift.state
        for drift in records.drifts
    }


def _inside(path: str) -> str:
    """Return the part of a path that does not depend on the environment's location."""
    return path.rpartition("-packages/")[2] or path


def _python(interpreter: Interpreter) -> Values:
    return {("Python", "Python"): interpreter.version}


def _gpus(gpus: Gpus) -> Values:
    limits = {device.power_limit for device in gpus.devices if device.power_limit}
    return {
        ("driver", "driver"): gpus.driver,
        ("GPUs", "GPUs"): str(len(gpus.devices)),
        ("GPU setting", "NVLink links in use"): str(sum(device.links_active for device in gpus.devices)),
        ("GPU setting", "power limit"): ", ".join(f"{limit} W" for limit in sorted(limits)),
        ("GPU setting", "MIG"): "on" if any(device.mig for device in gpus.devices) else "off",
    }


def compared_variables(variables: Variables) -> Values:
    """Return the variables that a program on another node also needs."""
    return {
        ("variable", name): value
        for name, value in variables.values.items()
        if COMPARED.match(name) and not OWN.fullmatch(name)
    }


def read_limits(limits: HostLimits) -> Values:
    """Return the limits of each process of the job."""
    subject = limits.subjects[0]
    return {
        ("limit", "open files"): _limit(subject.files),
        ("limit", "processes"): "unlimited" if subject.exempt else _limit(subject.processes),
        ("limit", "locked memory"): "unlimited" if subject.may_lock else _limit(subject.locked),
    }


def _limit(limit: Limit | None) -> str:
    if limit is None:
        return "undetermined"
    return "unlimited" if limit.soft is None else str(limit.soft)


def read_cpus(limits: HostLimits) -> Values:
    """Return how many CPUs the job may use."""
    cpus = limits.subjects[0].cpus or limits.online
    return {("capacity", "CPUs"): f"{cpus:g}"} if cpus else {}


def read_memory(memory: HostMemory) -> Values:
    """Return the memory of the machine or of its container, in bytes."""
    return {("capacity", "memory"): str(memory.total)} if memory.total else {}


def read_shared_memory(memory: SharedMemory) -> Values:
    """Return the size of /dev/shm, in bytes."""
    return {("capacity", "/dev/shm"): str(memory.size)}  # noqa: S108 - a name to show


def read_job_files(files: JobFiles) -> Values:
    """Return whether the model and the data exist."""
    return {("file", file.path): file.state for file in files.files}


def _sites(places: SitePlaces) -> Values:
    return {("file", place.path): place.state for place in places.places if place.state}


def _site_content(places: SitePlaces) -> Values:
    """Return the paths that the job only reads: what it writes may differ on each node."""
    return read_job_content(JobFiles(_read_alone(places)))


def _site_mounts(places: SitePlaces) -> Values:
    return _job_mounts(JobFiles(tuple(place.content for place in places.places if place.content)))


def _read_alone(places: SitePlaces) -> tuple[JobFile, ...]:
    return tuple(place.content for place in places.places if place.content and not place.writes)


def read_job_content(files: JobFiles) -> Values:
    """Return whether the content is the same."""
    return {
        ("content", file.path): f"{counted(file.files, 'file')}, {file.size:,} bytes (list {file.names})"
        for file in files.files
        if file.state == "there"
    }


def _job_times(files: JobFiles) -> Values:
    return {
        (
            "written",
            file.path,
        ): f"last written {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(file.changed))} UTC"
        for file in files.files
        if file.state == "there"
    }


def _job_mounts(files: JobFiles) -> Values:
    return {("mount", file.path): f"it on {file.mount}" for file in files.files if file.mount}


def _clock(clock: ClockOffset) -> Values:
    return {("clock", "clock"): str(clock.ahead)} if clock.within < _CLOCK else {}


def _folders(folders: Folders) -> Values:
    found: dict[tuple[str, str], str] = {}
    for folder in reversed(folders.folders):
        where = "shared with other machines" if folder.shared else "of this machine alone"
        found["mount", folder.use] = f"{folder.path} on {folder.kind or 'an unknown file system'}, {where}"
    return found


def read_network(network: Network) -> Values:
    """Return the interface through which traffic leaves."""
    return {("route", "default route"): network.default} if network.default else {}


def read_rdma(rdma: Rdma) -> Values:
    """Return the ports of InfiniBand and RoCE."""
    found = {("adapter", str(port)): f"{port.state}, {port.link}, {port.rate}" for port in rdma.ports}
    return {**found, ("adapter", "devices that cannot be opened"): str(len(rdma.closed))}


BYTES = Nearly(part=0.05, amount=0, show=in_bytes)
_SECONDS = Nearly(part=0, amount=_CLOCK, show="{:+.1f} s".format)

SUBJECTS = (
    SubjectReader(_versions, lacking_counts=False),
    SubjectReader(_builds, among_a_kind=True),
    SubjectReader(read_edited_files, among_a_kind=True),
    SubjectReader(_python),
    SubjectReader(_gpus, among_a_kind=True),
    SubjectReader(compared_variables, among_a_kind=True, may_name=True),
    SubjectReader(read_limits, among_a_kind=True),
    SubjectReader(read_cpus, among_a_kind=True),
    SubjectReader(read_memory, among_a_kind=True, nearly=BYTES),
    SubjectReader(read_shared_memory, among_a_kind=True, nearly=BYTES),
    SubjectReader(_folders, among_a_kind=True),
    SubjectReader(read_job_files),
    SubjectReader(_sites),
    SubjectReader(read_job_content, lacking_counts=False),
    SubjectReader(_site_content, lacking_counts=False),
    SubjectReader(_job_times, lacking_counts=False, may_name=True, weak=True),
    SubjectReader(_job_mounts, among_a_kind=True),
    SubjectReader(_site_mounts, among_a_kind=True),
    SubjectReader(_clock, nearly=_SECONDS),
    SubjectReader(read_network, among_a_kind=True),
    SubjectReader(read_rdma, among_a_kind=True),
)

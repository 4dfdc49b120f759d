"""The compared subjects of two machines, read from facts by kind and name, the most telling kinds first.

Readers are like those of `fleet_subjects`, which compare the nodes of one cluster, and some are the same.
These read more, because differences between two clusters are not accidents of one node.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from packaging.utils import canonicalize_name

from verl_doctor.toolkit.cluster import fleet_subjects
from verl_doctor.toolkit.cluster.fleet_subjects import Nearly, Values
from verl_doctor.toolkit.collectors.compiled.torch_build import TorchBuild
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.cuda.libcuda import LibCuda
from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus
from verl_doctor.toolkit.collectors.host.caches import Caches
from verl_doctor.toolkit.collectors.host.clock import Clock
from verl_doctor.toolkit.collectors.host.folders import Folders
from verl_doctor.toolkit.collectors.host.limits import HostLimits
from verl_doctor.toolkit.collectors.host.mounts import Mounts
from verl_doctor.toolkit.collectors.host.system import System
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees, VllmTree
from verl_doctor.toolkit.collectors.kernels.cuda_toolkit import CudaToolkit
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.network.network import Interface, Network
from verl_doctor.toolkit.collectors.ray.clusters import RayClusters
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.collectors.variables.variable_readers import VariableReaders
from verl_doctor.toolkit.collectors.vllm.attention import AttentionBackends
from verl_doctor.toolkit.comparison import meaning
from verl_doctor.toolkit.comparison.meaning import Matters, Step
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.text import in_bytes

_FOLDER = meaning.fixed_step("set its variable to a folder on {old}")

LEAD = (
    "verl",
    "vllm",
    "torch",
    "ray",
    "transformers",
    "flash-attn",
    "flashinfer-python",
    "triton",
    "nvidia-nccl-cu13",
    "nvidia-nccl-cu12",
    "sglang",
    "tensordict",
    "megatron-core",
    "transformer-engine",
)
"""The packages that are listed first, in this order."""


Required = Literal["script", "files"]
"""What the user has to name: a launch script, or a model or data."""


@dataclass(frozen=True)
class Reader:
    """A reader of values, and what a difference in them means if no rule reports it.

    `why` is one line of text. `nearly`: the values are numbers, and which of them count as equal. `step`
    restores the old value. `requires`: the user has to name the subject, and nothing is compared if one side
    was examined without it. `both`: only what both sides have is compared, because another reader reports
    what one side lacks.
    """

    read: Callable[..., Values]
    why: str
    matters: Matters = meaning.always
    nearly: Nearly | None = None
    step: Step = meaning.nothing
    requires: Required | None = None
    both: bool = False


def _packages(packages: Packages) -> Values:
    return {
        ("package", canonicalize_name(distribution.name)): distribution.version
        + (" (editable)" if distribution.editable else "")
        for distribution in packages.distributions
    }


def required(packages: Packages | Unknown) -> frozenset[str]:
    """Return what verl and vLLM themselves require, by package name, without the requirements of extras."""
    known = () if isinstance(packages, Unknown) else packages.distributions
    return frozenset(
        canonicalize_name(found[0])
        for distribution in known
        if canonicalize_name(distribution.name) in {"verl", "vllm"}
        for text in distribution.requires
        if "extra" not in text and (found := re.match(r"[\w.-]+", text))
    )


def _python(interpreter: Interpreter) -> Values:
    return {
        ("Python", "Python"): f"{interpreter.implementation} {interpreter.version}",
        ("Python", "machine"): f"{interpreter.system} {interpreter.machine}".strip(),
        ("Python", "glibc"): interpreter.glibc,
    }


def _verl_tree(trees: VerlTrees) -> Values:
    return {("package", "verl"): trees.imported.version}


def _vllm_tree(tree: VllmTree) -> Values:
    return {("package", "vllm"): tree.tree.version}


def _found_in(trees: VerlTrees) -> Values:
    return {("source tree", "verl"): trees.imported.found_in}


def _torch(build: TorchBuild) -> Values:
    abi = {True: "C++11 ABI", False: "old C++ ABI", None: ""}[build.cxx11_abi]
    return {("build", "torch"): ", ".join(filter(None, (f"CUDA {build.cuda}" if build.cuda else "CPU", abi)))}


def _driver(gpus: Gpus) -> Values:
    return {("driver", "driver"): gpus.driver, ("driver", "CUDA of the driver"): gpus.cuda}


def _gpus(gpus: Gpus) -> Values:
    return {("GPUs", "GPUs"): _counts(_gpu(device) for device in gpus.devices)}


def _gpu_settings(gpus: Gpus) -> Values:
    devices = gpus.devices
    found = {
        ("GPUs", "MIG"): _counts("on" if device.mig else "off" for device in devices),
        ("GPUs", "NVLink links in use"): _counts(str(device.links_active) for device in devices),
        ("GPUs", "fabric"): _counts(device.fabric.state for device in devices),
        ("GPUs", "power limit"): _counts(
            f"{device.power_limit} W" for device in devices if device.power_limit
        ),
        ("GPUs", "compute mode"): _counts(device.compute_mode for device in devices),
    }
    return {key: value for key, value in found.items() if value}


def _gpu(device: Device) -> str:
    memory = f", {in_bytes(device.memory.total * 2**20)}" if device.memory else ""
    return f"{device.name}{memory}, capability {device.capability}"


def _counts(values: Iterator[str]) -> str:
    """Return each value once, with its count: "8 x NVIDIA H200"."""
    every = list(values)
    return "; ".join(f"{every.count(value)} x {value}" for value in sorted(set(every)))


def _toolkit(toolkit: CudaToolkit) -> Values:
    return {
        ("compiler", "CUDA toolkit"): toolkit.release,
        ("compiler", "gcc"): str(toolkit.gcc or ""),
    }


def _libcuda(library: LibCuda) -> Values:
    first = next(iter(library.candidates), None)
    if first is None:
        return {}
    kind = "stub" if first.stub else "compat" if first.compat else "of the driver"
    return {("driver", "libcuda that is found first"): f"{first.version} ({kind}, by {first.how})"}


def _job_variables(
    job: JobVariables, interpreter: Interpreter | Unknown, trees: VerlTrees | Unknown
) -> Values:
    """Return the variables as the workers will have them.

    Folders of the environment and of the tree, which differ by machine, get fixed names.
    """
    return _named(job.values, job.undetermined, interpreter, trees)


def _variables(
    variables: Variables, interpreter: Interpreter | Unknown, trees: VerlTrees | Unknown
) -> Values:
    return _named(variables.values, variables.withheld, interpreter, trees)


def decided_elsewhere(shell: Variables | Unknown, job: JobVariables | Unknown) -> frozenset[str]:
    """Return the variables that differ between the job and the shell: its launch files or verl set them."""
    if isinstance(shell, Unknown) or isinstance(job, Unknown):
        return frozenset()
    return frozenset(name for name, value in job.values.items() if shell.values.get(name) != value)


def _named(
    values: Mapping[str, str],
    withheld: Iterable[str],
    interpreter: Interpreter | Unknown,
    trees: VerlTrees | Unknown,
) -> Values:
    places = {} if isinstance(interpreter, Unknown) else {interpreter.prefix: "<environment>"}
    if not isinstance(trees, Unknown):
        places[trees.imported.folder] = "<verl>"
    return {
        **{("variable", name): meaning.WITHHELD for name in withheld},
        **{("variable", name): _without_places(value, places) for name, value in values.items()},
    }


def _without_places(text: str, places: Mapping[str, str]) -> str:
    for folder, name in sorted(places.items(), reverse=True):
        if folder not in {"", "/", "/usr", "/usr/local"}:
            text = re.sub(rf"(?<![\w./-]){re.escape(folder)}(?![\w.-])", name, text)
    return text


def unread_variables(*sides: VariableReaders | Unknown) -> frozenset[str]:
    """Return the variables that no installed package reads, on every side where that is known."""
    known = [variable for side in sides if not isinstance(side, Unknown) for variable in side.variables]
    return frozenset(reading.name for reading in known if reading.dead) - {
        reading.name for reading in known if not reading.dead
    }


def _configuration(configuration: Configuration) -> Values:
    return {
        ("configuration", key): "null" if value is None else str(value)
        for key, value in leaves(configuration.after, "")
    }


def leaves(value: Mapping[str, object], key: str) -> Iterator[tuple[str, object]]:
    """Yield all keys below `key` that hold no others, with their values."""
    for name, inner in value.items():
        below = f"{key}.{name}" if key else str(name)
        if isinstance(inner, Mapping) and inner:
            yield from leaves(inner, below)
        else:
            yield below, inner


def _control_group(limits: HostLimits) -> Values:
    subject = limits.subjects[0]
    memory = subject.groups.memory_limit
    pids = subject.groups.pids
    return {
        ("control group", "memory"): "unlimited" if memory is None else str(memory),
        ("control group", "processes"): "unlimited" if pids is None else str(pids.pids),
    }


def _folders(folders: Folders) -> Values:
    return {
        ("file system", f"of {folder.use}"): _file_system(
            folder.kind, shared=folder.shared, writable=folder.writable, runnable=folder.runnable
        )
        for folder in reversed(folders.folders)
    }


def _caches(caches: Caches) -> Values:
    return {
        ("file system", f"of {folder.holds}"): _file_system(
            folder.kind, shared=folder.shared, writable=folder.writable, runnable=not folder.no_programs
        )
        for folder in caches.folders
    }


def _mounts(mounts: Mounts) -> Values:
    return {
        ("mount", mount.path): _file_system(
            mount.kind, shared=mount.shared, writable=not mount.read_only, runnable=mount.runnable
        )
        for mount in mounts.mounts
    }


def _file_system(kind: str, *, shared: bool, writable: bool, runnable: bool) -> str:
    where = meaning.SHARED if shared else "of this machine alone"
    lacks = ("" if writable else meaning.NOT_WRITABLE, "" if runnable else "programs may not be run")
    return ", ".join(filter(None, (kind, where, *lacks)))


def _ray(clusters: RayClusters) -> Values:
    chosen = clusters.chosen or next(iter(clusters.clusters), None)
    if chosen is None:
        return {}
    gpus = sum(node.resources.get("GPU", 0) for node in chosen.alive)
    return {
        ("Ray cluster", "Ray"): chosen.ray,
        ("Ray cluster", "Python"): chosen.python,
        ("Ray cluster", "nodes"): str(len(chosen.alive)),
        ("Ray cluster", "GPUs"): f"{gpus:g}",
    }


def _job_nodes(nodes: JobNodes) -> Values:
    return {("job", "nodes"): str(nodes.nodes)} if nodes.nodes else {}


def _backends(backends: AttentionBackends) -> Values:
    return {
        ("attention", "backends that are there"): ", ".join(
            sorted(backend.name for backend in backends.backends if not backend.problem)
        )
    }


def _system(system: System) -> Values:
    """Return the first two numbers of the kernel's release, which determine its features.

    Distributions number the rest.
    """
    return {
        ("system", "kernel"): f"{system.name} {'.'.join(system.release.split('.')[:2])}".strip(),
        ("system", "distribution"): system.distribution,
    }


def _details(system: System) -> Values:
    return {
        ("system", "kernel's release"): system.release,
        ("system", "processor"): f"{system.processors.threads} x {system.processors.model}",
    }


def _clock(clock: Clock) -> Values:
    return {("clock", "clock"): meaning.IN_STEP if clock.synchronised else "not synchronised"}


def _network(network: Network) -> Values:
    """Return the network interfaces.

    Host ends of containers' veth pairs come and go; one without an address is never chosen.
    """
    up = [
        interface
        for interface in network.interfaces
        if interface.up
        and interface.kind != "loopback"
        and (interface.kind != "veth" or _has_address(interface))
    ]
    route = {("network", "default route"): network.default} if network.default else {}
    return {
        **route,
        ("network", "interfaces"): ", ".join(
            sorted(f"{interface.name} ({interface.kind})" for interface in up)
        ),
    }


def _has_address(interface: Interface) -> bool:
    return any(not address.startswith("fe80:") for address in interface.addresses)


REQUIRED: Mapping[Required, str] = {"script": "a launch script", "files": "a model or data"}
"""Readable names of what the user has to name."""

READERS: tuple[Reader, ...] = (
    Reader(_verl_tree, "the job runs this code", step=meaning.install),
    Reader(_vllm_tree, "the rollout runs this code", step=meaning.install),
    Reader(_packages, "the job imports it", step=meaning.install),
    Reader(
        fleet_subjects.read_edited_files,
        "it is not as its package brought it",
        meaning.edited,
        step=meaning.fixed_step(meaning.OTHER_PATCHES),
    ),
    Reader(
        _python,
        "compiled packages are built for it",
        step=meaning.fixed_step("use an environment with {name} {old}"),
    ),
    Reader(
        _torch,
        "other compiled packages must be built for the same",
        step=meaning.fixed_step("install a build of {name} for {old}"),
    ),
    Reader(
        _found_in,
        "another copy of verl may be the one that runs",
        step=meaning.fixed_step("verl-doctor check --select PKG  # shows which one is imported"),
    ),
    Reader(
        _gpus,
        "batch sizes and parallelism are made for the GPUs",
        step=meaning.fixed_step(f"verl-doctor check {meaning.LAUNCH}"),
    ),
    Reader(
        _driver,
        "it decides which CUDA runs here",
        step=meaning.fixed_step("request {old} or later"),
        both=True,
    ),
    Reader(_libcuda, "processes load this one", both=True),
    Reader(
        _gpu_settings,
        "speed and memory depend on it",
        step=meaning.fixed_step("request {old}, as before"),
        both=True,
    ),
    Reader(
        _toolkit,
        "kernels are compiled with it when the job starts",
        step=meaning.fixed_step("use an image with {name} {old}"),
        both=True,
    ),
    Reader(
        _job_variables,
        "the job's processes have it",
        meaning.variable,
        step=meaning.export,
        requires="script",
    ),
    Reader(_variables, "the job's processes have it", meaning.variable, step=meaning.export),
    Reader(
        _configuration,
        "the launch script composes to it",
        meaning.setting,
        step=meaning.override,
        requires="script",
    ),
    Reader(fleet_subjects.read_limits, "less than the job had before", meaning.less, step=meaning.ulimit),
    Reader(
        _control_group,
        "the container gives less than the job had before",
        meaning.less,
        step=meaning.fixed_step("request from the scheduler as much as before"),
    ),
    Reader(
        fleet_subjects.read_cpus,
        "fewer than the job had before",
        meaning.less,
        step=meaning.fixed_step("request from the scheduler {old}"),
    ),
    Reader(
        fleet_subjects.read_memory,
        "less than the job had before",
        meaning.less,
        fleet_subjects.BYTES,
        meaning.fixed_step("request from the scheduler as much as before"),
    ),
    Reader(
        fleet_subjects.read_shared_memory,
        "less than the job had before",
        meaning.less,
        fleet_subjects.BYTES,
        meaning.shm_size,
    ),
    Reader(
        _mounts,
        "what lies there is not the same",
        meaning.mount,
        step=meaning.fixed_step("mount it here too, or name another folder in the launch script"),
    ),
    Reader(_folders, "speed and safety of what is written there depend on it", step=_FOLDER, both=True),
    Reader(_caches, "speed and safety of what is compiled depend on it", step=_FOLDER, both=True),
    Reader(
        fleet_subjects.read_job_files,
        "the job reads it",
        meaning.lost,
        step=meaning.fixed_step("copy {name} here"),
        requires="files",
    ),
    Reader(_ray, "the job joins it", step=meaning.fixed_step("use a Ray cluster with {name} {old}")),
    Reader(_job_nodes, "the job is spread over them", requires="script"),
    Reader(_backends, "the rollout can choose among them only", both=True),
    Reader(fleet_subjects.read_rdma, "traffic between nodes goes through it"),
    Reader(
        _network,
        "NCCL and gloo choose among them by name",
        step=meaning.fixed_step(
            "set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME to an interface that exists here"
        ),
    ),
    Reader(_clock, "logs and time-outs of several nodes are compared by it", meaning.clock),
    Reader(_system, "drivers and containers depend on it"),
    Reader(_details, "", meaning.never),
)

__all__ = ["LEAD", "READERS", "REQUIRED", "Reader", "leaves", "required", "unread_variables"]

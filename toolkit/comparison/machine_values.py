"""The facts of a machine as values to compare, by kind and name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.utils import canonicalize_name

from verl_doctor.toolkit.cluster.fleet_subjects import Values
from verl_doctor.toolkit.collectors.compiled.torch_build import TorchBuild
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
from verl_doctor.toolkit.collectors.network.network import Interface, Network
from verl_doctor.toolkit.collectors.ray.clusters import RayClusters
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes
from verl_doctor.toolkit.collectors.vllm.attention import AttentionBackends
from verl_doctor.toolkit.comparison import meaning
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.text import in_bytes


def read_packages(packages: Packages) -> Values:
    """Return the version of each package, and whether it is editable."""
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


def read_python(interpreter: Interpreter) -> Values:
    """Return Python, the kind of machine and its C library."""
    return {
        ("Python", "Python"): f"{interpreter.implementation} {interpreter.version}",
        ("Python", "machine"): f"{interpreter.system} {interpreter.machine}".strip(),
        ("Python", "glibc"): interpreter.glibc,
    }


def read_verl_tree(trees: VerlTrees) -> Values:
    """Return the version of the verl tree that the job imports."""
    return {("package", "verl"): trees.imported.version}


def read_vllm_tree(tree: VllmTree) -> Values:
    """Return the version of vLLM's tree."""
    return {("package", "vllm"): tree.tree.version}


def read_found_in(trees: VerlTrees) -> Values:
    """Return where the verl tree was found."""
    return {("source tree", "verl"): trees.imported.found_in}


def read_torch(build: TorchBuild) -> Values:
    """Return what torch was built for."""
    abi = {True: "C++11 ABI", False: "old C++ ABI", None: ""}[build.cxx11_abi]
    return {("build", "torch"): ", ".join(filter(None, (f"CUDA {build.cuda}" if build.cuda else "CPU", abi)))}


def read_driver(gpus: Gpus) -> Values:
    """Return the driver's version, and its CUDA."""
    return {("driver", "driver"): gpus.driver, ("driver", "CUDA of the driver"): gpus.cuda}


def read_gpus(gpus: Gpus) -> Values:
    """Return the kinds of GPUs, each with its count."""
    return {("GPUs", "GPUs"): _counts(_gpu(device) for device in gpus.devices)}


def read_gpu_settings(gpus: Gpus) -> Values:
    """Return the settings and the links of the GPUs."""
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


def read_toolkit(toolkit: CudaToolkit) -> Values:
    """Return the CUDA toolkit and the host compiler."""
    return {
        ("compiler", "CUDA toolkit"): toolkit.release,
        ("compiler", "gcc"): str(toolkit.gcc or ""),
    }


def read_libcuda(library: LibCuda) -> Values:
    """Return the libcuda that a process loads."""
    first = next(iter(library.candidates), None)
    if first is None:
        return {}
    kind = "stub" if first.stub else "compat" if first.compat else "of the driver"
    return {("driver", "libcuda that is found first"): f"{first.version} ({kind}, by {first.how})"}


def read_control_group(limits: HostLimits) -> Values:
    """Return the limits of the control group."""
    subject = limits.subjects[0]
    memory = subject.groups.memory_limit
    pids = subject.groups.pids
    return {
        ("control group", "memory"): "unlimited" if memory is None else str(memory),
        ("control group", "processes"): "unlimited" if pids is None else str(pids.pids),
    }


def read_folders(folders: Folders) -> Values:
    """Return the file systems of the job's folders."""
    return {
        ("file system", f"of {folder.use}"): _file_system(
            folder.kind, shared=folder.shared, writable=folder.writable, runnable=folder.runnable
        )
        for folder in reversed(folders.folders)
    }


def read_caches(caches: Caches) -> Values:
    """Return the file systems of the caches."""
    return {
        ("file system", f"of {folder.holds}"): _file_system(
            folder.kind, shared=folder.shared, writable=folder.writable, runnable=not folder.no_programs
        )
        for folder in caches.folders
    }


def read_mounts(mounts: Mounts) -> Values:
    """Return the file systems that are mounted."""
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


def read_ray(clusters: RayClusters) -> Values:
    """Return the Ray cluster that the job joins, or the only one."""
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


def read_job_nodes(nodes: JobNodes) -> Values:
    """Return how many nodes the job requests."""
    return {("job", "nodes"): str(nodes.nodes)} if nodes.nodes else {}


def read_backends(backends: AttentionBackends) -> Values:
    """Return the attention backends that can be used."""
    return {
        ("attention", "backends that are there"): ", ".join(
            sorted(backend.name for backend in backends.backends if not backend.problem)
        )
    }


def read_system(system: System) -> Values:
    """Return the first two numbers of the kernel's release, which determine its features.

    Distributions number the rest.
    """
    return {
        ("system", "kernel"): f"{system.name} {'.'.join(system.release.split('.')[:2])}".strip(),
        ("system", "distribution"): system.distribution,
    }


def read_details(system: System) -> Values:
    """Return the kernel's exact release and the processor."""
    return {
        ("system", "kernel's release"): system.release,
        ("system", "processor"): f"{system.processors.threads} x {system.processors.model}",
    }


def read_clock(clock: Clock) -> Values:
    """Return whether the clock is synchronised."""
    return {("clock", "clock"): meaning.IN_STEP if clock.synchronised else "not synchronised"}


def read_network(network: Network) -> Values:
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

"""Single faults on a recorded healthy H200 node, with the rule that reports each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from support.machine_facts import Facts, at, eight_gpus, healthy_node
from verl_doctor.toolkit.collectors.compiled.extensions import Extension, Extensions, MissingSymbol
from verl_doctor.toolkit.collectors.connections.network_variables import NetworkVariables, VariableValue
from verl_doctor.toolkit.collectors.connections.ports import Listener, Ports, RequestedPorts
from verl_doctor.toolkit.collectors.connections.proxied import Client, Proxied
from verl_doctor.toolkit.collectors.cuda.init import CudaAnswer, CudaInit
from verl_doctor.toolkit.collectors.cuda.libcuda import LibCuda, Library
from verl_doctor.toolkit.collectors.cuda.library_path import LibraryPath, StubFolder
from verl_doctor.toolkit.collectors.gpu.gpus import Gpus, Memory
from verl_doctor.toolkit.collectors.gpu.holders import Holder
from verl_doctor.toolkit.collectors.gpu.xid import Xid, Xids
from verl_doctor.toolkit.collectors.host.caches import Caches
from verl_doctor.toolkit.collectors.host.clock import Clock
from verl_doctor.toolkit.collectors.host.folders import Folders
from verl_doctor.toolkit.collectors.host.limits import HostLimits, Limit
from verl_doctor.toolkit.collectors.host.memory import HostMemory
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.host.shared_memory import SharedMemory
from verl_doctor.toolkit.collectors.kernels.cuda_toolkit import CudaToolkit
from verl_doctor.toolkit.collectors.kernels.flashinfer import FlashInfer
from verl_doctor.toolkit.collectors.kernels.gpu_code import GpuCode, PackageCode, PackagesCode
from verl_doctor.toolkit.collectors.kernels.triton_build import TritonBuild
from verl_doctor.toolkit.collectors.kernels.triton_kernel import TritonKernel
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.network.network import Network
from verl_doctor.toolkit.collectors.network.rdma import Port, Rdma
from verl_doctor.toolkit.collectors.packages.cuda_wheels import CudaWheel, CudaWheels
from verl_doctor.toolkit.collectors.ray.import_ import RayImport
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes
from verl_doctor.toolkit.collectors.variables.effective_environment import (
    Effective,
    EffectiveEnvironment,
    Value,
)
from verl_doctor.toolkit.collectors.variables.visible_devices import Choice, VisibleDevices
from verl_doctor.toolkit.collectors.vllm.sampler import VllmSampler
from verl_doctor.toolkit.system.cgroups import ControlGroups, Group

GIB = 1 << 30
_LONGEST = 210  # characters of a sentence

_STUB = Library(
    "/usr/local/cuda/lib64/stubs/libcuda.so.1",
    "/usr/local/cuda/lib64/stubs/libcuda.so",
    stub=True,
    how="LD_LIBRARY_PATH",
    entry="/usr/local/cuda/lib64/stubs",
)
_COMPAT = Library(
    "/usr/local/cuda/compat/libcuda.so.1",
    "/usr/local/cuda-13.0/compat/libcuda.so.580.95.05",
    "580.95.05",
    compat=True,
    how="LD_LIBRARY_PATH",
    entry="/usr/local/cuda/compat",
)
_FLASH = Extension(
    "/env/lib/python3.12/site-packages/flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so",
    "flash-attn",
    "2.7.4.post1",
    "x86_64",
    uses_torch=True,
    cuda=True,
    cuda_runtimes=("libcudart.so.13",),
    missing_symbols=(
        MissingSymbol(
            "_ZN3c104cuda9SetDeviceEi",
            "c10::cuda::SetDevice(int)",
            ("c10::cuda::SetDevice(signed char, bool)",),
        ),
    ),
    symbols_missing=1,
    built_for_torch="2.5",
)


def _named_for_its_interface(network: Network) -> Network:
    own = next(each for each in network.interfaces if each.name == network.default)
    return replace(network, host=replace(network.host, addresses=own.addresses[:1]))


TWO_NODES = {
    JobNodes: at("nodes", 2),
    Network: _named_for_its_interface,
    Clock: at("synchronised", value=True),
}


def _first(library: Library) -> Any:
    return lambda fact: replace(fact, candidates=(library, *fact.candidates))


def _with_group(**limits: Any) -> Any:
    above = Group("/sys/fs/cgroup/kubepods.slice/pod1", **limits)
    return at("shell.groups", ControlGroups((Group(f"{above.folder}/container"), above)))


def _worker_has(name: str, value: str) -> Any:
    said = Value(value)
    row = Effective(name, said, (said,), (said,), "the driver")
    return lambda fact: replace(fact, rows=(*fact.rows, row))


def _plus(extension: Extension) -> Any:
    return lambda fact: replace(fact, extensions=(*fact.extensions, extension))


@dataclass(frozen=True)
class Fault:
    """The fault, the rule that reports it, and some of its words."""

    name: str
    code: str
    words: str
    edits: Mapping[type, Any] = field(default_factory=dict)
    node: Callable[[], Facts] = healthy_node

    def __str__(self) -> str:
        return f"{self.code} {self.name}"


FAULTS = [
    Fault("a stub first", "CUDA102", "is a stub", {LibCuda: _first(_STUB)}),
    Fault(
        "compat older than the driver",
        "CUDA103",
        "libcuda 580.95.05 would be loaded with driver 580.159.04",
        {LibCuda: _first(_COMPAT), CudaInit: CudaInit(CudaAnswer(_COMPAT.real, 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"))},
    ),
    Fault("cuInit answers 802", "CUDA104", "802", {CudaInit: CudaInit(CudaAnswer("/usr/local/nvidia/lib64/libcuda.so.580.159.04", 802, "CUDA_ERROR_SYSTEM_NOT_READY"))}),
    Fault("no libcuda", "CUDA101", "no libcuda.so.1", {LibCuda: at("candidates", ()), CudaInit: CudaInit(CudaAnswer(error="libcuda.so.1: cannot open shared object file"))}),
    Fault("Triton finds none to link with", "CUDA105", "-lcuda", {TritonBuild: lambda fact: replace(fact, linked="", link_error="/usr/bin/ld: cannot find -lcuda: No such file or directory")}),
    Fault("no compiler for Triton", "CUDA106", "C compiler", {TritonBuild: lambda fact: replace(fact, compiler="", compiler_error="Failed to find C compiler. Please specify via CC environment variable.", linked="")}),
    Fault("Python.h is missing", "CUDA107", "Python.h", {TritonBuild: at("missing_headers", ("Python.h",))}),
    Fault("a Triton kernel fails", "CUDA109", "", {TritonKernel: lambda fact: replace(fact, step="run", error="RuntimeError: Triton Error [CUDA]: device kernel image is invalid", right=False)}),
    Fault("flash-attn of another torch", "CUDA110", "built for torch 2.5", {Extensions: _plus(_FLASH)}),
    Fault("NCCL for another CUDA beside", "CUDA113", "CUDA 12", {CudaWheels: lambda fact: replace(fact, wheels=(*fact.wheels, CudaWheel("nvidia-nccl-cu12", "2.27.5", 12)))}),
    Fault("a driver for CUDA 12", "CUDA114", "need CUDA 13", {Gpus: lambda fact: replace(fact, driver="550.54.15", cuda="12.4")}),
    Fault("PTX alone, newer than the driver", "CUDA115", "PTX of CUDA 13.1", {PackagesCode: lambda fact: replace(fact, files=(*fact.files, PackageCode("flash-attn", "2.7.4.post1", _FLASH.path, (GpuCode("ptx", 80, (9, 1)),))))}),
    Fault("nvcc is missing", "CUDA132", "nvcc", {FlashInfer: at("built", ()), VllmSampler: at("with_processed", value=True), CudaToolkit: lambda fact: replace(fact, home="", given_by="", nvcc="", on_path="", candidate="")}),
    Fault("no compiled sampler", "CUDA130", "nvcc compiles it when vLLM 0.24.0 first starts", {FlashInfer: at("built", ()), VllmSampler: at("with_processed", value=True)}),
    Fault("caches on NFS", "CUDA135", "nfs4", {Caches: lambda fact: replace(fact, folders=tuple(replace(place, kind="nfs4", shared=True, is_root=False, mounted_on="/home") if place.variable == "TRITON_CACHE_DIR" else place for place in fact.folders))}),
    Fault("NVML has no answer", "CUDA140", "Unknown Error", {Gpus: Gpus(refused="Unknown Error"), Resources: lambda fact: replace(fact, gpus=None, why="NVML does not respond: Unknown Error")}),
    Fault("memory held by another process", "CUDA141", "VLLM::EngineCore", {Gpus: lambda fact: replace(fact, devices=(replace(fact.devices[0], memory=Memory(143771, 130_000, 13_155, 616), holders=(Holder(4711, 130_000, "engine", "VLLM::EngineCore", mine=True, parent=1),)),))}),
    Fault("rows of memory could not be remapped", "CUDA142", "GPU 0", {Gpus: at("devices.0.health.remap_failed", value=True)}),
    Fault("an Xid that asks for a reset", "CUDA143", "48", {Xids: Xids((Xid(48, "0000:00:06", 90.0),))}),
    Fault("too hot", "CUDA144", "slowed down", {Gpus: at("devices.0.slowdowns", ("hardware thermal slowdown",))}),
    Fault("MIG", "CUDA145", "MIG", {Gpus: at("devices.0.mig", value=True)}),
    Fault("exclusive mode", "CUDA146", "one process at a time", {Gpus: at("devices.0.compute_mode", "exclusive process")}),
    Fault("the fabric is not up", "CUDA147", "fabric", {Gpus: at("devices.0.fabric.state", "in progress"), CudaInit: CudaInit(CudaAnswer("/usr/local/nvidia/lib64/libcuda.so.580.159.04", 802, "CUDA_ERROR_SYSTEM_NOT_READY"))}),
    Fault("a narrow slot", "CUDA149", "PCIe", {Gpus: at("devices.0.bus.width", 4)}),
    Fault("a GPU is hidden", "CUDA152", "CUDA shows no GPU", {VisibleDevices: VisibleDevices((), Choice("3", (), stops_at="3")), Resources: at("gpus", ())}),
    Fault("HIP_VISIBLE_DEVICES reaches the workers", "CUDA153", "HIP_VISIBLE_DEVICES=0,1", {EffectiveEnvironment: _worker_has("HIP_VISIBLE_DEVICES", "0,1")}),
    Fault("a lost GPU", "CUDA155", "GPU is lost", {Gpus: at("devices.0.trouble", "GPU is lost")}),
    Fault("a CPU quota of the pod", "HOST101", "16 CPUs", {HostLimits: _with_group(cpus=2.0)}),
    Fault("Slurm gave 2 CPUs and enforces nothing", "HOST101", "may use 2", {Variables: lambda fact: replace(fact, values={**fact.values, "SLURM_CPUS_ON_NODE": "2"})}),
    Fault("a cpuset of cgroup v1, as Slurm makes it", "HOST101", "may use 2", {HostLimits: at("shell.groups", ControlGroups((Group("/sys/fs/cgroup/cpuset/slurm/uid_1000/job_7", cpuset=2),)))}),
    Fault("pids of a group above", "HOST102", "pid", {HostLimits: _with_group(pids=700, pids_used=90)}),
    Fault("few open files", "HOST103", "128", {HostLimits: at("shell.files", Limit(128, 128))}),
    Fault("Docker's /dev/shm", "HOST105", "/dev/shm", {SharedMemory: lambda fact: replace(fact, size=64 << 20, free=64 << 20)}),
    Fault("a full disk", "HOST106", "left", {Folders: lambda fact: replace(fact, folders=tuple(replace(place, free=GIB) for place in fact.folders))}),
    Fault("Ray's sessions on NFS", "HOST107", "nfs4", {Folders: lambda fact: replace(fact, folders=(replace(fact.folders[0], kind="nfs4", shared=True), *fact.folders[1:]))}),
    Fault("a long temporary folder", "HOST108", "too long", {Folders: at("folders.0.path", "/scratch/users/somebody/projects/reinforcement/tmp/ray")}),
    Fault("a read-only temporary folder", "HOST109", "", {Folders: at("folders.0.writable", value=False)}),
    Fault("overcommit 2", "HOST113", "will commit", {HostMemory: lambda fact: replace(fact, overcommit=2, committed=60 * GIB)}),
    Fault("killed for want of memory", "HOST114", "", {HostLimits: _with_group(oom_kills=3)}),
    Fault("a slow import of Ray", "HOST117", "took 40 s", {RayImport: RayImport(40.0)}),
    Fault("little address space", "HOST118", "", {HostLimits: at("shell.addresses", Limit(64 * GIB, 64 * GIB))}),
    Fault("the name leads to loopback, on two nodes", "NET101", "127.0.0.1", {**TWO_NODES, Network: at("host.addresses", ("127.0.0.1",))}),
    Fault("the name leads to nobody, on two nodes", "NET102", "no interface", {**TWO_NODES, Network: at("host.addresses", ("10.9.9.9",))}),
    Fault("gloo is given an interface of another cluster", "NET103", "bond0", {**TWO_NODES, NetworkVariables: NetworkVariables((VariableValue("GLOO_SOCKET_IFNAME", "bond0"),))}),
    Fault("an InfiniBand port is down", "NET107", "mlx5_1", {**TWO_NODES, Rdma: Rdma((Port("mlx5_0", 1, "ACTIVE", "LinkUp", "InfiniBand", "400 Gb/sec"), Port("mlx5_2", 1, "ACTIVE", "LinkUp", "InfiniBand", "400 Gb/sec"), Port("mlx5_1", 1, "DOWN", "Disabled", "InfiniBand", "400 Gb/sec")), ("/dev/infiniband/uverbs0",))}),
    Fault("InfiniBand without locked memory", "NET109", "64.0 KiB", {**TWO_NODES, Rdma: Rdma((Port("mlx5_0", 1, "ACTIVE", "LinkUp", "InfiniBand", "400 Gb/sec"),), ("/dev/infiniband/uverbs0",)), HostLimits: lambda fact: replace(fact, shell=replace(fact.shell, locked=Limit(65536, 65536), may_lock=False))}),
    Fault("a proxy, and a network in no_proxy", "NET113", "does not understand 10.0.0.0/8", {Proxied: Proxied(("10.0.0.5",), ("http_proxy",), {"no_proxy": "10.0.0.0/8"}, (Client("httpx", ("10.0.0.5",)), Client("requests")))}),
    Fault("the port of the head is taken", "NET114", "is listening", {Ports: lambda fact: replace(fact, listeners=(Listener(6379, "127.0.0.1", 8, "redis-server", mine=True),), wanted=(RequestedPorts(6379, 6379, "ray start --port", "/home/user/job/launch.sh", 4),))}),
    Fault("fewer NVLinks than the others have", "CUDA148", "9 active NVLinks", {Gpus: at("devices.3.links_active", 9)}, eight_gpus),
    Fault("two that reach each other only through the CPU", "CUDA156", "GPUs 0 and 4", {Gpus: at("peers.3.read", "chipset not supported")}, eight_gpus),
    Fault("one of another kind", "CUDA154", "GPU 3", {Gpus: at("devices.3.name", "NVIDIA A100-SXM4-80GB")}, eight_gpus),
    Fault("no persistence mode", "CUDA150", "9.0 s", {Gpus: lambda fact: replace(fact, seconds=9.0, devices=tuple(replace(device, persistence=False) for device in fact.devices))}, eight_gpus),
    Fault("a list of folders for CUDA_HOME", "CUDA133", "is a list", {CudaToolkit: lambda fact: replace(fact, home="/usr/local/cuda:/usr/local/cuda-12", nvcc="")}),
    Fault("a cache that may not be written", "CUDA136", "is not writable", {Caches: lambda fact: replace(fact, folders=tuple(replace(place, writable=False) if place.variable == "TRITON_CACHE_DIR" else place for place in fact.folders))}),
    Fault("stubs on the loader's path", "ENV105", "stubs for the linker", {LibraryPath: LibraryPath((StubFolder("/usr/local/cuda/lib64/stubs", "/home/user/job/launch.sh", 3),))}),
]  # fmt: skip

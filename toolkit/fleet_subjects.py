"""In what the nodes of one cluster should be alike: what is read from a node's facts, by kind and name of the subject.

A reader is a function of facts, as a rule is; a node for which one of them is not known is not compared in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from verl_doctor.toolkit.fact_environment import Variables
from verl_doctor.toolkit.fact_folders import Folders
from verl_doctor.toolkit.fact_gpus import Gpus
from verl_doctor.toolkit.fact_interpreter import Interpreter
from verl_doctor.toolkit.fact_limits import HostLimits, Limit
from verl_doctor.toolkit.fact_network import Network
from verl_doctor.toolkit.fact_packages import Distribution, Packages
from verl_doctor.toolkit.fact_rdma import Rdma
from verl_doctor.toolkit.fact_records import Records
from verl_doctor.toolkit.fact_shared_memory import SharedMemory
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.fleet_facts import NodeFacts
from verl_doctor.toolkit.text import in_bytes

Answers = Mapping[tuple[str, str], str]
"""A node's values, by kind and name of what they are about."""

# Variables that a program on another node must have too, and of those the ones that name the node or its process.
_COMPARED = re.compile(
    r"(?:CUDA_|FLASHINFER_|FLASH_ATTENTION_|GLOO_|HF_|NCCL_|NVSHMEM_|OMP_|PYTHON|PYTORCH_|RAY_|TOKENIZERS_|TORCH|"
    r"TRANSFORMERS_|TRITON_|TP_SOCKET_IFNAME|UCX_|VERL_|VLLM_|LD_LIBRARY_PATH|LD_PRELOAD)"
)
_OWN = re.compile(
    r"(?:VLLM_HOST_IP|VLLM_DP_RANK\w*|NCCL_HOSTID|CUDA_VISIBLE_DEVICES|CUDA_MPS_\w+|HF_TOKEN_PATH|"
    r"RAY_(?:ADDRESS|RAYLET_PID|NODE_\w+|WORKER_\w+|JOB_ID|CLIENT_\w+|INTERNAL_\w+|SESSION_\w+))"
)


@dataclass(frozen=True)
class SubjectReader:
    """A reader of answers.

    `among_a_kind`: nodes are compared with those alone that have the same kind of GPUs. `lacking_counts`: that a node has no
    such thing is an answer.
    """

    read: Callable[..., Answers]
    among_a_kind: bool = False
    lacking_counts: bool = True


def gpus_of(facts: NodeFacts) -> str:
    """The kind of a node: the names of its GPUs, "" when it has none or they cannot be seen."""
    gpus = facts.get(Gpus)
    if isinstance(gpus, Unknown):
        return ""
    return ", ".join(sorted({device.name for device in gpus.devices}))


def _versions(packages: Packages) -> Answers:
    return {("package", one.name): one.version.partition("+")[0] for one in packages.distributions}


def _builds(packages: Packages) -> Answers:
    """What a head without GPUs may well have otherwise: builds for other hardware, and packages that only GPUs need."""
    return {("build", one.name): _build(one) for one in packages.distributions}


def _build(one: Distribution) -> str:
    local = one.version.partition("+")[2]
    return (
        " ".join(filter(None, (f"+{local}" if local else "", "editable" if one.editable else ""))) or "plain"
    )


def _edited_files(records: Records) -> Answers:
    return {
        ("edited file", f"{drift.package}: {_inside(drift.path)}"): drift.sha256[:12] or drift.state
        for drift in records.drifts
    }


def _inside(path: str) -> str:
    """The part of a path that is the same wherever the environment lies."""
    return path.rpartition("-packages/")[2] or path


def _python(interpreter: Interpreter) -> Answers:
    return {("python", "Python"): interpreter.version, ("python", "glibc"): interpreter.glibc}


def _gpus(gpus: Gpus) -> Answers:
    limits = {device.power_limit for device in gpus.devices if device.power_limit}
    return {
        ("GPU", "driver"): gpus.driver,
        ("GPU", "CUDA of the driver"): gpus.cuda,
        ("GPU", "number of GPUs"): str(len(gpus.devices)),
        ("GPU", "NVLink links in use"): str(sum(device.links_active for device in gpus.devices)),
        ("GPU", "power limit"): ", ".join(f"{limit} W" for limit in sorted(limits)),
        ("GPU", "MIG"): "on" if any(device.mig for device in gpus.devices) else "off",
    }


def _variables(variables: Variables) -> Answers:
    return {
        ("variable", name): value
        for name, value in variables.values.items()
        if _COMPARED.match(name) and not _OWN.fullmatch(name)
    }


def _limits(limits: HostLimits) -> Answers:
    one = limits.raylets[0] if limits.raylets else limits.shell
    whose = "Ray" if limits.raylets else "this shell"
    return {
        ("limit", f"open files of {whose}"): _limit(one.files),
        ("limit", f"processes of {whose}"): _limit(one.processes),
        ("limit", f"locked memory of {whose}"): "unlimited" if one.may_lock else _limit(one.locked),
    }


def _limit(limit: Limit | None) -> str:
    if limit is None:
        return "not told"
    return "unlimited" if limit.soft is None else str(limit.soft)


def _shared_memory(memory: SharedMemory) -> Answers:
    return {("limit", "size of /dev/shm"): in_bytes(memory.size)}


def _folders(folders: Folders) -> Answers:
    found = {}
    for folder in folders.folders:
        where = "other machines see it too" if folder.shared else "its own"
        found["mount", f"{folder.path} ({folder.use})"] = f"{folder.kind or 'unknown'}, {where}"
    return found


def _network(network: Network) -> Answers:
    return {("network", "interface of the default route"): network.default}


def _rdma(rdma: Rdma) -> Answers:
    found = {("RDMA", f"{port}"): f"{port.state.lower()}, {port.link}, {port.rate}" for port in rdma.ports}
    return {**found, ("RDMA", "adapters that may not be opened"): str(len(rdma.closed))}


SUBJECTS = (
    SubjectReader(_versions, lacking_counts=False),
    SubjectReader(_builds, among_a_kind=True),
    SubjectReader(_edited_files),
    SubjectReader(_python),
    SubjectReader(_gpus, among_a_kind=True),
    SubjectReader(_variables),
    SubjectReader(_limits, among_a_kind=True),
    SubjectReader(_shared_memory, among_a_kind=True),
    SubjectReader(_folders, among_a_kind=True),
    SubjectReader(_network, among_a_kind=True),
    SubjectReader(_rdma, among_a_kind=True),
)

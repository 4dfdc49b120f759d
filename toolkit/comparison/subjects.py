"""The compared subjects of two machines and what their differences mean, the most telling kinds first.

Readers are like those of `fleet_subjects`, which compare the nodes of one cluster, and some are the same.
These read more, because differences between two clusters are not accidents of one node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from verl_doctor.toolkit.cluster import fleet_subjects
from verl_doctor.toolkit.cluster.fleet_subjects import Nearly, Values
from verl_doctor.toolkit.comparison import job_values, machine_values, meaning
from verl_doctor.toolkit.comparison.meaning import Matters, Step

_FOLDER = meaning.words("set its variable to a folder on {old}")

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


REQUIRED: Mapping[Required, str] = {"script": "a launch script", "files": "a model or data"}
"""Readable names of what the user has to name."""

READERS: tuple[Reader, ...] = (
    Reader(machine_values.read_verl_tree, "the job runs this code", step=meaning.install),
    Reader(machine_values.read_vllm_tree, "the rollout runs this code", step=meaning.install),
    Reader(machine_values.read_packages, "the job imports it", step=meaning.install),
    Reader(
        fleet_subjects.read_edited_files,
        "it is not as its package brought it",
        meaning.edited,
        step=meaning.fixed_command(meaning.OTHER_PATCHES),
    ),
    Reader(
        machine_values.read_python,
        "compiled packages are built for it",
        step=meaning.words("use an environment with {name} {old}"),
    ),
    Reader(
        machine_values.read_torch,
        "other compiled packages must be built for the same",
        step=meaning.words("install a build of {name} for {old}"),
    ),
    Reader(
        machine_values.read_found_in,
        "another copy of verl may be the one that runs",
        step=meaning.fixed_command("verl-doctor check --select PKG  # shows which one is imported"),
    ),
    Reader(
        machine_values.read_gpus,
        "batch sizes and parallelism are made for the GPUs",
        step=meaning.fixed_command(f"verl-doctor check {meaning.LAUNCH}"),
    ),
    Reader(
        machine_values.read_driver,
        "it decides which CUDA runs here",
        step=meaning.words("request {old} or later"),
        both=True,
    ),
    Reader(machine_values.read_libcuda, "processes load this one", both=True),
    Reader(
        machine_values.read_gpu_settings,
        "speed and memory depend on it",
        step=meaning.words("request {old}, as before"),
        both=True,
    ),
    Reader(
        machine_values.read_toolkit,
        "kernels are compiled with it when the job starts",
        step=meaning.words("use an image with {name} {old}"),
        both=True,
    ),
    Reader(
        job_values.read_job_variables,
        "the job's processes have it",
        meaning.variable,
        step=meaning.export,
        requires="script",
    ),
    Reader(job_values.read_variables, "the job's processes have it", meaning.variable, step=meaning.export),
    Reader(
        job_values.read_configuration,
        "the launch script composes to it",
        meaning.setting,
        step=meaning.override,
        requires="script",
    ),
    Reader(fleet_subjects.read_limits, "less than the job had before", meaning.less, step=meaning.ulimit),
    Reader(
        machine_values.read_control_group,
        "the container gives less than the job had before",
        meaning.less,
        step=meaning.words("request from the scheduler as much as before"),
    ),
    Reader(
        fleet_subjects.read_cpus,
        "fewer than the job had before",
        meaning.less,
        step=meaning.words("request from the scheduler {old}"),
    ),
    Reader(
        fleet_subjects.read_memory,
        "less than the job had before",
        meaning.less,
        fleet_subjects.BYTES,
        meaning.words("request from the scheduler as much as before"),
    ),
    Reader(
        fleet_subjects.read_shared_memory,
        "less than the job had before",
        meaning.less,
        fleet_subjects.BYTES,
        meaning.shm_size,
    ),
    Reader(
        machine_values.read_mounts,
        "what lies there is not the same",
        meaning.mount,
        step=meaning.words("mount it here too, or name another folder in the launch script"),
    ),
    Reader(
        machine_values.read_folders,
        "speed and safety of what is written there depend on it",
        step=_FOLDER,
        both=True,
    ),
    Reader(
        machine_values.read_caches,
        "speed and safety of what is compiled depend on it",
        step=_FOLDER,
        both=True,
    ),
    Reader(
        fleet_subjects.read_job_files,
        "the job reads it",
        meaning.lost,
        step=meaning.words("copy {name} here"),
        requires="files",
    ),
    Reader(
        machine_values.read_ray,
        "the job joins it",
        step=meaning.words("use a Ray cluster with {name} {old}"),
    ),
    Reader(machine_values.read_job_nodes, "the job is spread over them", requires="script"),
    Reader(machine_values.read_backends, "the rollout can choose among them only", both=True),
    Reader(fleet_subjects.read_rdma, "traffic between nodes goes through it"),
    Reader(
        machine_values.read_network,
        "NCCL and gloo choose among them by name",
        step=meaning.words("set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME to an interface that exists here"),
    ),
    Reader(
        machine_values.read_clock, "logs and time-outs of several nodes are compared by it", meaning.clock
    ),
    Reader(machine_values.read_system, "drivers and containers depend on it"),
    Reader(machine_values.read_details, "", meaning.never),
)

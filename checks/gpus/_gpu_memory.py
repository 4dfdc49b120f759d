"""The least GPU memory that a PPO job needs, from the sizes of its model, for the rules about GPU memory.

These are lower bounds in bytes: activations, fragments, CUDA graphs and the contexts of the processes are
added to them, and cannot be known before a run. FSDP with AdamW keeps each parameter's weight, its gradient
and two states of the optimizer. The rollout's engine has the weights in 16 bits, divided among its GPUs, and
the keys and values of each token in 16 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from verl_doctor.checks.shared.configuration import GPUS, NODES, number_of
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.roles import has_reference
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.model.model import Model
from verl_doctor.toolkit.collectors.model.size import ModelSize
from verl_doctor.toolkit.facts import Unknown

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
FSDP = f"{ACTOR}.fsdp_config"
PARAMETERS, OPTIMIZER = f"{FSDP}.param_offload", f"{FSDP}.optimizer_offload"
PARALLEL = f"{ROLLOUT}.tensor_model_parallel_size"
_HALF = ("bf16", "bfloat16", "fp16", "float16")
_HALF_BYTES = 2


@dataclass(frozen=True)
class Trainer:
    """The trainer's part of one GPU in bytes: weights, gradients as large, and the optimizer's states.

    `kept_weights` and `kept_states` are whether these stay on the GPU while the rollout works. The
    reference's weights never do: verl lets FSDP keep what is only read in the host's memory, regardless of
    the settings. A single rank of FSDP's first version moves them there with the first batch; until then, and
    so when the engine starts, `reference` bytes are on the GPU (measured with verl 0.9.1 on an H100).
    """

    weights: float
    states: float
    kept_weights: bool
    kept_states: bool
    reference: float = 0.0

    @property
    def training(self) -> float:
        """Bytes during training: offloaded parts return for each step."""
        return 2 * self.weights + self.states

    @property
    def at_start(self) -> float:
        """Bytes when the engine starts."""
        return self.weights * self.kept_weights + self.reference

    @property
    def resident(self) -> float:
        """Bytes while the rollout works."""
        return self.weights * self.kept_weights + self.states * self.kept_states


@dataclass(frozen=True)
class Engine:
    """The rollout's part of one GPU, in bytes: the weights, and the keys and values of one token.

    The latter are 0 if unknown.

    `longest` is the number of tokens of the longest sequence, 0 if unknown.
    """

    weights: float
    token: float
    longest: int

    @property
    def least(self) -> float:
        """The bytes without which vLLM does not start: weights, and room for one sequence."""
        return self.weights + self.token * self.longest


def trainer_of(configuration: Configuration, size: ModelSize, resources: Resources | Unknown) -> Trainer:
    """What FSDP keeps on each GPU, sharded over all of them or over groups of `fsdp_size`."""
    everywhere = max(gpus_of(configuration, resources) * (number_of(configuration, NODES) or 1), 1)
    group = number_of(configuration, f"{FSDP}.fsdp_size")
    spread = group if 0 < group < everywhere else everywhere
    width = _width(configuration, FSDP)
    lingers = (
        everywhere == 1 and configuration.get(f"{ACTOR}.strategy") == "fsdp" and has_reference(configuration)
    )
    return Trainer(
        width * size.parameters / spread,
        2 * width * size.parameters / spread,
        configuration.get(PARAMETERS) is not True,
        configuration.get(OPTIMIZER) is not True,
        _width(configuration, "actor_rollout_ref.ref.fsdp_config") * size.parameters if lingers else 0.0,
    )


def _width(configuration: Configuration, fsdp: str) -> int:
    """The bytes of one weight."""
    return _HALF_BYTES if configuration.get(f"{fsdp}.model_dtype") in _HALF else 4


def engine_of(configuration: Configuration, size: ModelSize, model: Model) -> Engine:
    """What vLLM needs on each GPU to start."""
    parallel = max(number_of(configuration, PARALLEL), 1)
    heads = max(model.kv_heads / parallel, 1) if model.kv_heads else 0
    longest = number_of(configuration, f"{ROLLOUT}.max_model_len") or (
        number_of(configuration, "data.max_prompt_length")
        + number_of(configuration, "data.max_response_length")
    )
    return Engine(
        _HALF_BYTES * size.parameters / parallel,
        2 * _HALF_BYTES * model.layers * heads * model.head_size,
        longest,
    )


def gpus_of(configuration: Configuration, resources: Resources | Unknown) -> int:
    """The number of GPUs of one node that the job uses."""
    here = 0 if isinstance(resources, Unknown) else len(resources.gpus or ())
    return number_of(configuration, GPUS) or here

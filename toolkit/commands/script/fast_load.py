"""The FAST_LOAD variant: the same training, started sooner by settings.

These are settings that the installed packages read and that help here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.collectors.host.limits import HostLimits
from verl_doctor.toolkit.collectors.host.memory import HostMemory
from verl_doctor.toolkit.collectors.host.shared_memory import SharedMemory
from verl_doctor.toolkit.collectors.model.copy import ModelCopy
from verl_doctor.toolkit.collectors.model.storage import ModelStorage
from verl_doctor.toolkit.collectors.vllm.engine_arguments import SECTION
from verl_doctor.toolkit.collectors.vllm.loading import STRATEGY, VllmLoading
from verl_doctor.toolkit.commands.script.variant import Recipe, RecipeBuilder
from verl_doctor.toolkit.engine.collect import Facts
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.text import in_bytes

_ROLLOUT = "actor_rollout_ref.rollout"
_MODEL = "actor_rollout_ref.model"
_FORMAT = f"{_ROLLOUT}.load_format"
_DEFAULT_LOADER = frozenset({"auto", "hf", "safetensors"})  # the formats that vLLM's strategies support
_AHEAD = "prefetch"
_FOLKLORE = (
    "no variable is set: VLLM_WORKER_MULTIPROC_METHOD decides how vLLM starts its processes, "
    "TOKENIZERS_PARALLELISM whether tokenizers use threads, and neither reads weights faster"
)


@dataclass(frozen=True)
class Surroundings:
    """Where the weights are and which vLLM features can load them; None if unknown.

    `room` is the memory that may be used, in bytes. `waits`: verl's processes wait for the process that
    copies the weights.
    """

    storage: ModelStorage | None = None
    loading: VllmLoading | None = None
    room: float = 0
    waits: bool = False


def surroundings(facts: Facts) -> Surroundings:
    """Return the surroundings of a job that starts here."""
    storage, loading, copy = facts.get(ModelStorage), facts.get(VllmLoading), facts.get(ModelCopy)
    return Surroundings(
        None if isinstance(storage, Unknown) else storage,
        None if isinstance(loading, Unknown) else loading,
        _room(facts.get(SharedMemory), facts.get(HostMemory), facts.get(HostLimits)),
        waits=isinstance(copy, ModelCopy) and copy.guarded,
    )


def _room(shm: SharedMemory | Unknown, memory: HostMemory | Unknown, limits: HostLimits | Unknown) -> float:
    """Return half of the free memory, limited by /dev/shm: the job loads the weights in the other half."""
    if isinstance(shm, Unknown) or isinstance(memory, Unknown) or memory.available is None:
        return 0
    amounts = [shm.free, memory.available / 2]
    group = None if isinstance(limits, Unknown) else limits.shell.groups.memory
    if group is not None:
        amounts.append(group.memory_left / 2)
    return min(amounts)


def fast_load(configuration: Configuration, around: Surroundings | None = None) -> Recipe:
    """Return the changes to a command that starts verl."""
    around = around or Surroundings()
    changes = RecipeBuilder(configuration)
    changes.give(
        f"{_ROLLOUT}.enforce_eager",
        True,
        (
            "no graphs are compiled and captured at the start; every step samples more slowly, so do not "
            "use it for long runs"
        ),
    )
    _engine(changes, around)
    _copy(changes, around)
    changes.kept.append(_FOLKLORE)
    return changes.recipe()


def _engine(changes: RecipeBuilder, around: Surroundings) -> None:
    """Let the rollout skip reading weights if verl sends trained ones before sampling; else read ahead.

    The former is verl's own default in main_ppo, `load_format: dummy...`. With LoRA the rollout keeps the
    base weights that it has read.
    """
    now, own = changes.value(_FORMAT), changes.configuration.default(_FORMAT)
    if now is MISSING:
        return
    if str(now).startswith("dummy"):
        changes.kept.append(
            f"{_FORMAT}={now} stays: the rollout reads no weights from disk, so no other format could "
            "be faster"
        )
    elif str(own).startswith("dummy") and _is_filled_by_trainer(changes) and not _trains_adapters(changes):
        changes.give(
            _FORMAT, own, "verl sends the weights to the rollout, which does not need to read them first"
        )
    else:
        changes.kept.append(f"{_FORMAT}={now} stays: here the rollout needs the weights from disk")
        _read_ahead(changes, around)


def _is_filled_by_trainer(changes: RecipeBuilder) -> bool:
    """Return whether trainer and rollout share GPUs, so that the rollout first gets the trainer's weights."""
    program = Path(changes.configuration.program)
    shared = program.name == "main_ppo.py" and "experimental" not in program.parts
    return shared and changes.value("actor_rollout_ref.hybrid_engine") is not False


def _trains_adapters(changes: RecipeBuilder) -> bool:
    ranks = (changes.value(f"{_MODEL}.lora_rank"), changes.value(f"{_MODEL}.lora.rank"))
    return any(rank not in (MISSING, None, 0) for rank in ranks)


def _read_ahead(changes: RecipeBuilder, around: Surroundings) -> None:
    """Read ahead: a mapped file on a network file system otherwise arrives in small pieces."""
    storage, loading = around.storage, around.loading
    if storage is None or loading is None or not storage.shared or _AHEAD not in loading.strategies:
        return
    by_itself = storage.kind in loading.reads_ahead_on
    if (
        changes.value(f"{_ROLLOUT}.name") == "vllm"
        and str(changes.value(_FORMAT)) in _DEFAULT_LOADER
        and not by_itself
    ):
        changes.append(f"{SECTION}.{STRATEGY}", _AHEAD, f"vLLM reads ahead on {storage.kind}")


def _copy(changes: RecipeBuilder, around: Surroundings) -> None:
    """Let verl copy cold weights from a network file system to shared memory, once for a node's processes."""
    storage = around.storage
    if storage is None or storage.in_memory or storage.in_shared_memory or not storage.cold:
        return
    cold = f"{in_bytes(storage.cold)} of the weights are not in memory"
    safe = (
        around.waits or changes.value("trainer.nnodes") == 1
    )  # otherwise all processes of a node copy at once: LOAD116
    room = storage.shared and storage.bytes <= around.room
    if safe and room and changes.value(f"{_MODEL}.use_shm") is False:
        changes.give(f"{_MODEL}.use_shm", True, f"{cold}: each node copies them once from {storage.kind}")
    else:
        changes.kept.append(f"{cold}: run verl-doctor warmup before the job")

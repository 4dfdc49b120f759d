"""Settings that the job sets to null although its code uses them without a check."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.sources.python.source import read

_ACTOR = "actor_rollout_ref.actor"
_OF_TRAINER, _OF_LOSSES, _OF_TRACKERS = "trainer/ppo", "workers", "utils"
_HANDED_ON = rb"[\"']?lora_alpha[\"']?\s*[:=]\s*self\.\w+\.lora_alpha\b"
# Keys, where verl uses them, or hands them to peft, which does, how, and what switches that on.
_USES = (
    ("model.lora_alpha", _OF_LOSSES, _HANDED_ON, "model.lora_rank"),
    ("actor_rollout_ref.model.lora_alpha", _OF_LOSSES, _HANDED_ON, "actor_rollout_ref.model.lora_rank"),
    ("trainer.logger", _OF_TRACKERS, rb"\bfor \w+ in default_backend:", ""),
    ("trainer.critic_warmup", _OF_TRAINER, rb"\.critic_warmup\s*[<>]", ""),
    (f"{_ACTOR}.entropy_coeff", _OF_LOSSES, rb"(?:^|[^\w.])entropy_coeff\s*\*", ""),
    (
        f"{_ACTOR}.kl_loss_coef",
        _OF_LOSSES,
        rb"\*\s*(?:self\.)?config\.kl_loss_coef\b",
        f"{_ACTOR}.use_kl_loss",
    ),
)


def _makes_adapter(configuration: Configuration, model: str) -> bool:
    """Return whether the engine of a model hands its settings to peft.

    The engines of FSDP do, unless the job names a stored adapter.
    """
    engine = configuration.get("engine.strategy" if model == "model" else f"{_ACTOR}.strategy")
    stored = configuration.get(f"{model}.lora_adapter_path")
    return engine in ("fsdp", "fsdp2", None, MISSING) and stored in (None, MISSING)


def null_settings(configuration: Configuration, verl: Path) -> Iterator[tuple[str, str]]:
    """Yield these keys, each with the source that uses it."""
    if not configuration.program.endswith(("/trainer/main_ppo.py", "/trainer/sft_trainer.py")):
        return
    for key, folder, use, switch in _USES:
        if configuration.override_of(key) is None or configuration.get(key) is not None:
            continue
        if switch and configuration.get(switch) in (False, None, 0, MISSING):
            continue
        if key.endswith(".lora_alpha") and not _makes_adapter(configuration, key.rpartition(".")[0]):
            continue
        form = re.compile(use, re.MULTILINE)
        for path in sorted((verl / folder).rglob("*.py")):
            source = read(path)
            if isinstance(source, bytes) and (found := form.search(source)):
                line = source.count(b"\n", 0, found.start()) + 1
                yield key, f"{path}:{line}"
                break

"""LOAD109: vLLM is set to read weights that the trainer supplies anyway."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.loading._loading import (
    LOAD_FORMAT,
    SEVEN_BILLION,
    engine_reads,
    has_adapters,
    job,
    load_format,
)
from verl_doctor.checks.shared.configuration import place
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.model.files import ModelFiles
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import in_bytes

_HYBRID = (
    "main_ppo.py",
)  # programs in which trainer and rollout share the GPUs, and the first sync fills vLLM
_SHORT = {
    "auto": "safetensors if there are any, else .bin files",
    "hf": "safetensors if there are any, else .bin files",
    "safetensors": (
        "the same as auto, which reads .bin files only if there are no safetensors; it is not faster"
    ),
}


def _irrelevant(configuration: Configuration) -> str | None:
    if configuration.get("actor_rollout_ref.rollout.name") != "vllm":
        return "the rollout does not use vLLM"
    if not configuration.program.endswith(_HYBRID) or "experimental" in configuration.program:
        return "in this program the rollout may have GPUs of its own"
    if not str(configuration.default(LOAD_FORMAT)).startswith("dummy"):
        return "this verl does not give vLLM its weights by default"
    return "LoRA is trained, whose base vLLM may read itself" if has_adapters(configuration) else None


def _examples() -> list[Example]:
    return [
        Example("verl's default", (job(), SEVEN_BILLION)),
        Example(
            "LoRA, for which verl recommends it",
            (job(f"{LOAD_FORMAT}=safetensors", "actor_rollout_ref.model.lora_rank=32"), SEVEN_BILLION),
        ),
        Example(
            "a setting meant to speed up loading",
            (job(f"{LOAD_FORMAT}=safetensors"), SEVEN_BILLION),
            "vLLM reads 16.0 GiB that the trainer supplies anyway",
        ),
        Example(
            "the former default",
            (job(f"{LOAD_FORMAT}=auto"), SEVEN_BILLION),
            "vLLM reads 16.0 GiB that the trainer supplies anyway",
        ),
    ]


@check("LOAD109", severity="info", applies=_irrelevant, examples=_examples)
def load_format_reads_needlessly(configuration: Configuration, files: ModelFiles) -> Iterator[Finding]:
    """vLLM is set to read weights that the trainer supplies anyway.

    ## Why it matters

    With `load_format=dummy`, verl's default, vLLM starts without reading weights: before the first rollout it
    receives the trainer's. With any other value each vLLM process first reads the whole model, and the
    trainer's weights then replace it. `load_format=safetensors` is often suggested against slow loading. It
    differs from `auto` in only one way: it does not look for `.bin` files if there are no safetensors.
    Safetensors are read in the same way.

    ## How to fix

    Remove `rollout.load_format`. For LoRA with `layered_summon`, verl needs `safetensors`, and this rule is
    silent. LOAD114 (with `--deep`) shows what makes reading faster.
    """
    word = configuration.override_of(LOAD_FORMAT)
    format_ = load_format(configuration)
    if word is None or not engine_reads(configuration):
        return
    yield Finding(
        f"with load_format={format_} vLLM reads {in_bytes(files.bytes)} that the trainer supplies anyway",
        Evidence(
            found=f"{word.text}: {_SHORT[format_]}" if format_ in _SHORT else word.text,
            wanted=f"{LOAD_FORMAT}={configuration.default(LOAD_FORMAT)}, the default, which reads nothing",
            read_from=files.folder,
        ),
        subject=Subject("setting", LOAD_FORMAT),
        location=place(word),
        remedy=f"remove {word.text}",
    )

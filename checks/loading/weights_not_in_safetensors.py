"""LOAD107: the weights are in a format that is slow to load, or that the trainer cannot read."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.loading._loading import GIB
from verl_doctor.checks.loading._weights import files_of, shard
from verl_doctor.toolkit.collectors.model.files import ModelFiles, WeightFile
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check
from verl_doctor.toolkit.text import in_bytes, listed

_PICKLE = WeightFile(name="pytorch_model.bin", format="pickle", size=14 * GIB)
_GGUF = WeightFile(name="model-q4.gguf", format="gguf", size=4 * GIB)
_FEW = GIB  # too few bytes to matter


def _examples() -> list[Example]:
    return [
        Example("safetensors", (files_of(shard("model.safetensors")),)),
        Example("pickles next to safetensors are not read", (files_of(shard("model.safetensors"), _PICKLE),)),
        Example(
            "a small model", (files_of(WeightFile(name="pytorch_model.bin", format="pickle", size=1000)),)
        ),
        Example("only pickles", (files_of(_PICKLE),), "14.0 GiB of weights are pickles"),
        Example("for llama.cpp", (files_of(_GGUF),), "only weights in GGUF format"),
    ]


@check("LOAD107", phase="workers", severity="info", examples=_examples)
def weights_not_in_safetensors(files: ModelFiles) -> Iterator[Finding]:
    """The weights are in a format that is slow to load, or that the trainer cannot read.

    ## Why it matters

    Safetensors are mapped: the processes of a node share one copy in the page cache and read what they need.
    Each process unpacks pickles (`pytorch_model.bin`) into its own memory, which can also run code. GGUF is
    for llama.cpp: the trainer's `from_pretrained` finds no weights in such a folder.

    ## How to fix

    Convert them once: `AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(NEW)`. Many models are on
    the hub in both formats. Instead of a GGUF model use the original from which it was converted.
    """
    if files.of("safetensors"):
        return
    pickles = files.of("pickle")
    size = sum(file.size for file in pickles)
    if not pickles:
        yield _finding(
            files,
            files.of("gguf"),
            f"{files.folder} contains only weights in GGUF format",
            "use the model from which it was converted",
        )
    elif size >= _FEW:
        yield _finding(
            files,
            pickles,
            f"{in_bytes(size)} of weights are pickles, which each process unpacks into its own memory",
            "convert them to safetensors with save_pretrained",
        )


def _finding(files: ModelFiles, which: tuple[WeightFile, ...], message: str, remedy: str) -> Finding:
    return Finding(
        message,
        Evidence(listed((file.name for file in which), 3), "model.safetensors", files.folder),
        subject=Subject("model", files.folder),
        location=Location(files.folder),
        remedy=remedy,
        severity="error" if which[0].format == "gguf" else None,
    )

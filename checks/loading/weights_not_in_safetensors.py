"""LOAD107: the weights are kept in a format that is slow to load, or that the trainer cannot read."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.loading._loading import GIB
from verl_doctor.checks.loading._weights import files_of, shard
from verl_doctor.toolkit.collectors.model.files import ModelFiles, WeightFile
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check
from verl_doctor.toolkit.text import in_bytes, listed

_PICKLE = WeightFile("pytorch_model.bin", "pickle", 14 * GIB)
_GGUF = WeightFile("model-q4.gguf", "gguf", 4 * GIB)
_FEW = GIB  # bytes that nobody waits for


@check(
    "LOAD107",
    phase="workers",
    severity="info",
    examples=lambda: [
        Example("safetensors", (files_of(shard("model.safetensors")),)),
        Example("pickles beside them are read by nobody", (files_of(shard("model.safetensors"), _PICKLE),)),
        Example("a small model", (files_of(WeightFile("pytorch_model.bin", "pickle", 1000)),)),
        Example("pickles alone", (files_of(_PICKLE),), "14.0 GiB of weights are pickles"),
        Example("for llama.cpp", (files_of(_GGUF),), "only weights in the format GGUF"),
    ],
)  # fmt: skip
def weights_not_in_safetensors(files: ModelFiles) -> Iterator[Finding]:
    """The weights are kept in a format that is slow to load, or that the trainer cannot read.

    ## Why it matters

    Safetensors are mapped: the processes of a node share one copy in the page cache and take from it what they need. Pickles
    (`pytorch_model.bin`) are unpacked by each process into memory of its own, and run code while they are. GGUF is for llama.cpp: the trainer's `from_pretrained`
    finds no weights in such a folder.

    ## How to fix

    Write them anew once: `AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(NEW)`; many models are on the hub in both
    formats. Of a GGUF model take the original that it was made from.
    """
    if files.of("safetensors"):
        return
    pickles = files.of("pickle")
    size = sum(file.size for file in pickles)
    if not pickles:
        yield _finding(
            files,
            files.of("gguf"),
            f"{files.folder} holds only weights in the format GGUF",
            "take the model that it was made from",
        )
    elif size >= _FEW:
        yield _finding(
            files,
            pickles,
            f"{in_bytes(size)} of weights are pickles, which each process unpacks into memory of its own",
            "write them as safetensors with save_pretrained",
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

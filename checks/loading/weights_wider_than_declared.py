"""LOAD111: the weights take twice the bytes that the model's configuration implies."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.loading._loading import GIB
from verl_doctor.checks.loading._weights import files_of, shard
from verl_doctor.toolkit.collectors.model.files import ModelFiles
from verl_doctor.toolkit.collectors.model.model import Model
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check
from verl_doctor.toolkit.text import in_bytes

_HALF = {"bfloat16": "BF16", "float16": "F16"}
_FEW = GIB  # too few bytes to matter
_WIDE = files_of(shard("model.safetensors", 28 * GIB, kinds={"F32": 28 * GIB}))


def _declaring(dtype: str) -> Model:
    return Model(folder="/models/qwen", named_by="--model", dtype=dtype)


def _examples() -> list[Example]:
    return [
        Example("as configured", (_declaring("bfloat16"), files_of(shard("model.safetensors", 28 * GIB)))),
        Example("float32 by intention", (_declaring("float32"), _WIDE)),
        Example(
            "a few norms are wider",
            (
                _declaring("bfloat16"),
                files_of(shard("model.safetensors", 28 * GIB, kinds={"BF16": 27 * GIB, "F32": GIB})),
            ),
        ),
        Example(
            "twice the bytes", (_declaring("bfloat16"), _WIDE), "28.0 GiB of weights are stored as float32"
        ),
    ]


@check("LOAD111", severity="info", examples=_examples)
def weights_wider_than_declared(model: Model, files: ModelFiles) -> Iterator[Finding]:
    """The weights take twice the bytes that the model's configuration implies.

    ## Why it matters

    Checkpoints merged from training are often left in float32 although `config.json` has bfloat16: each load
    reads twice as much, and each copy takes twice the space. vLLM rounds them to 16 bits anyway.

    ## How to fix

    If full precision is not needed, convert the model: `from_pretrained(DIR,
    dtype=torch.bfloat16).save_pretrained(NEW)`.
    """
    wide = sum(file.kinds.get("F32", 0) for file in files.loaded)
    if model.dtype in _HALF and wide >= _FEW and wide > files.bytes / 2:
        yield Finding(
            f"{in_bytes(wide)} of weights are stored as float32, but config.json has {model.dtype}",
            Evidence(
                f"F32: {wide:,} bytes", f"{_HALF[model.dtype]}: half of them", f"{files.folder} (headers)"
            ),
            subject=Subject("model", files.folder),
            location=Location(files.folder),
            remedy=f"save it in {model.dtype}: {in_bytes(wide / 2)} less to read in each load",
        )

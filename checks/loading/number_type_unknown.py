"""LOAD121: torch has no dtype of the name in the model's config.json."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.collectors.model.model import Model
from verl_doctor.toolkit.collectors.model.support import NumberType
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Location, Subject, check

_MODEL = Model(
    folder="/models/mine",
    named_by="--model",
    architectures=("Qwen2ForCausalLM",),
    model_type="qwen2",
    dtype="bfloat61",
)
_TORCH = "/env/torch/_C/__init__.pyi"


def _examples() -> list[Example]:
    return [
        Example("torch has it", (_MODEL, NumberType("bfloat16", known=True, nearest=(), read_from=_TORCH))),
        Example(
            "torch does not have it",
            (_MODEL, NumberType("bfloat61", known=False, nearest=("bfloat16",), read_from=_TORCH)),
            "names the dtype bfloat61, which torch does not have; did you mean bfloat16?",
        ),
    ]


@check("LOAD121", phase="workers", requires={"LOAD101"}, examples=_examples, since="0.2")
def number_type_unknown(model: Model, numbers: NumberType) -> Iterator[Finding]:
    """torch has no dtype of the name in the model's config.json.

    ## Why it matters

    transformers looks `dtype` (`torch_dtype` in older files) up in torch when it reads the configuration,
    before any weights: `module 'torch' has no attribute ...`. The workers stop there.

    ## How to fix

    Write the name without `torch.`: `bfloat16`, `float16` or `float32`.
    """
    if numbers.known:
        return
    near = f"; did you mean {numbers.nearest[0]}?" if numbers.nearest else ""
    yield Finding(
        f"{model.folder}/config.json names the dtype {numbers.name}, which torch does not have{near}",
        Evidence(numbers.name, "a dtype that torch has", numbers.read_from),
        subject=Subject("model", model.folder, "dtype"),
        location=Location(f"{model.folder}/config.json"),
        remedy=f"set dtype to {numbers.nearest[0] if numbers.nearest else 'bfloat16'} in config.json",
        stops=(EVERY_JOB,),
    )

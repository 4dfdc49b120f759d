"""LOAD120: the weights have other shapes than the model's configuration implies."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.model.weight_shapes import Mismatch, WeightShapes
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Location, Subject, check

_OVERRIDDEN = "model.override_config"
_ATTENTION = "attn_implementation"
_MODEL = "/models/qwen"
_VOCABULARY = Mismatch(
    tensor="lm_head.weight", found=(512, 64), implied=(1024, 64), entries=("vocab_size", "hidden_size")
)


def _examples() -> list[Example]:
    return [
        Example("as configured", (WeightShapes(_MODEL),)),
        Example(
            "the job overrides the configuration",
            (
                *configured("+actor_rollout_ref.model.override_config.vocab_size=512"),
                WeightShapes(folder=_MODEL, mismatches=(_VOCABULARY,)),
            ),
        ),
        Example(
            "another vocabulary",
            (WeightShapes(folder=_MODEL, mismatches=(_VOCABULARY,)),),
            "lm_head.weight has the shape 512 x 64, but config.json implies 1024 x 64",
        ),
    ]


@check("LOAD120", phase="workers", requires=("LOAD101",), examples=_examples, since="0.2")
def weights_of_another_shape(
    shapes: WeightShapes, configuration: Configuration | Unknown
) -> Iterator[Finding]:
    """The weights have other shapes than the model's configuration implies.

    ## Why it matters

    transformers refuses to load them, in every worker: `You set ignore_mismatched_sizes to False`, or `size
    mismatch`. Usually `config.json` is that of another size of the family, or was edited.

    ## How to fix

    Use the `config.json` that belongs to the weights, or correct the entries that the finding names.
    """
    given = () if isinstance(configuration, Unknown) else configuration.overrides
    if not shapes.mismatches or any(
        _OVERRIDDEN in word.key
        for word in given
        if word.fate == "applied" and not word.key.endswith(_ATTENTION)
    ):
        return
    first = shapes.mismatches[0]
    more = f", as do {len(shapes.mismatches) - 1} more" if len(shapes.mismatches) > 1 else ""
    yield Finding(
        (
            f"{first.tensor} has the shape {_shown(first.found)}, but config.json implies "
            f"{_shown(first.implied)}{more}"
        ),
        Evidence(
            found=f"{first.tensor}: {_shown(first.found)}",
            wanted=f"{_shown(first.implied)}, by {', '.join(first.entries)}",
            read_from=f"{shapes.folder}/config.json",
        ),
        location=Location(f"{shapes.folder}/config.json"),
        remedy=f"correct {' or '.join(first.entries)} in config.json, or use the weights that belong to it",
        subject=Subject("model", shapes.folder, first.tensor),
        stops=(EVERY_JOB,),
    )


def _shown(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))

"""LOAD105: the index of a model's shards does not match their contents."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.loading._weights import files_of, shard
from verl_doctor.toolkit.collectors.model.files import ModelFiles
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Severity, Subject, check
from verl_doctor.toolkit.text import counted, listed

Pairs = tuple[tuple[str, str], ...]

_SHARDS = (shard("1.safetensors"), shard("2.safetensors"))
_NAMES = ("1.safetensors", "2.safetensors")


def _examples() -> list[Example]:
    return [
        Example("the index and its shards agree", (files_of(*_SHARDS, indexed=_NAMES),)),
        Example(
            "an additional file next to the shards is ignored", (files_of(*_SHARDS, indexed=_NAMES[:1]),)
        ),
        Example(
            "shards of two versions",
            (files_of(*_SHARDS, indexed=_NAMES, lost=(("lm_head.weight", "2.safetensors"),), lost_count=1),),
            "1 tensor of the index is in none of its shards: lm_head.weight",
        ),
        Example(
            "a tensor in two shards",
            (
                files_of(
                    *_SHARDS, indexed=_NAMES, twice=(("model.norm.weight", "1.safetensors"),), twice_count=1
                ),
            ),
            "1 tensor is in several shards",
        ),
    ]


@check("LOAD105", phase="workers", examples=_examples)
def shards_disagree_with_index(files: ModelFiles) -> Iterator[Finding]:
    """The index of a model's shards does not match their contents.

    ## Why it matters

    `model.safetensors.index.json` maps each tensor to its shard. With shards of another version, or a
    checkpoint that was merged by hand, transformers leaves the missing tensors random (`newly initialized`)
    and the job trains on noise; vLLM refuses (`weights were not initialized from checkpoint`). If a tensor is
    in two shards, the one read last counts.

    ## How to fix

    Download the shards and the index of one version again, or rewrite both with `save_pretrained`.
    """
    kinds: tuple[tuple[Pairs, int, str, str, Severity], ...] = (
        (files.lost, files.lost_count, "lost", "of the index {} in none of its shards", "error"),
        (files.twice, files.twice_count, "twice", "{} in several shards", "warning"),
    )
    for pairs, number, how, what, severity in kinds:
        if number:
            problem = what.format("is" if number == 1 else "are")
            yield Finding(
                f"{counted(number, 'tensor')} {problem}: {listed((name for name, _ in pairs), 2)}",
                Evidence(
                    found=f"{pairs[0][0]}, for which the index names {pairs[0][1] or 'nothing'}",
                    wanted="each tensor in one shard, the one that the index names",
                    read_from=f"{files.index} and the headers of {counted(len(files.indexed), 'shard')}",
                ),
                subject=Subject("file", files.index, how),
                location=Location(files.index),
                remedy="download the shards and the index of one version again",
                severity=severity,
            )

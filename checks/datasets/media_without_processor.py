"""DATA110: rows contain images, videos or audio, but the model has no processor for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.datasets._data import DEMANDS, TABLE, location, readable, tables
from verl_doctor.toolkit.collectors.model.data_demands import DataDemands
from verl_doctor.toolkit.collectors.model.data_tables import DataTables
from verl_doctor.toolkit.collectors.model.model import Model
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import listed

_TEXT = Model("/models/qwen", "--model", ("Qwen2ForCausalLM",), "qwen2", has_processor=False)
_NEEDS = replace(DEMANDS, media=("images", "videos"))
_IMAGES = DataTables((replace(TABLE, filled=("prompt", "images")),))


@check(
    "DATA110",
    phase="first batch",
    requires={"LOAD101"},
    examples=lambda: [
        Example("no images", (tables(), _NEEDS, _TEXT)),
        Example("a model that sees", (_IMAGES, _NEEDS, replace(_TEXT, has_processor=True))),
        Example("a verl that ignores them", (_IMAGES, DEMANDS, _TEXT)),
        Example("images for a model of text", (_IMAGES, _NEEDS, _TEXT), "has images, but /models/qwen has no processor"),
    ],
    since="0.2",
)  # fmt: skip
def media_without_processor(tables: DataTables, demands: DataDemands, model: Model) -> Iterator[Finding]:
    """Rows contain images, videos or audio, but the model has no processor for them.

    ## Why it matters

    verl needs the model's processor for the first row that has such a value: `processor is needed to process multimodal data`. A
    model of text has none.

    ## How to fix

    Use a model that takes this input, or set `data.image_key`, `data.video_key` or `data.audio_key` to a column that does not exist.
    """
    if model.has_processor:
        return
    for table in readable(tables, demands):
        found = [name for name in demands.media if name in table.filled]
        if found and table.file.role != "val":
            yield Finding(
                f"{table.file.path} has {listed(found, 3)}, but {model.folder} has no processor",
                Evidence(listed(found, 3), "no values there, or a processor_config.json", demands.read_from),
                location=location(table.file),
                remedy="use a model that takes this input, or remove the column",
                subject=Subject("file", table.file.path, ",".join(found)),
                stops=(EVERY_JOB,),
            )

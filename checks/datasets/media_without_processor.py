"""DATA110: rows contain images, videos or audio, but the model has no processor for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.datasets._data import DEMANDS, TABLE, location, readable, tables
from verl_doctor.checks.shared.corrections import healed, settings
from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.collectors.model.data_demands import ConversationDemands, DataDemands
from verl_doctor.toolkit.collectors.model.data_tables import Column, DataTables, Table
from verl_doctor.toolkit.collectors.model.model import Model
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Correction, Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import listed

_PLAIN = "content: string"  # only plain texts are searched for media
_KEYS = {"data.image_key": "images", "data.video_key": "videos", "data.audio_key": "audios"}
_EMPTY_KINDS = ("list<null>", "null")
_UNUSED = ("none", "unused", "not_read")
_TEXT = Model(
    folder="/models/qwen",
    named_by="--model",
    architectures=("Qwen2ForCausalLM",),
    model_type="qwen2",
    has_processor=False,
)
_NEEDS = replace(DEMANDS, media=("images", "videos"))
_TALKS = ConversationDemands(
    read_from="/env/verl/utils/dataset/multiturn_sft_dataset.py",
    media=("images", "videos"),
    messages="messages",
)
_TEXTS = Column(name="messages", kind="list<struct<content: string, role: string>>")
_PARTS = Column(
    name="messages", kind="list<struct<content: list<struct<text: string, type: string>>, role: string>>"
)
_EMPTY = Column(name="images", kind="list<null>")
_IMAGES = DataTables((replace(TABLE, filled=("prompt", "images")),))


def _examples() -> list[Example]:
    return [
        Example("no images", (tables(), _NEEDS, _TEXT)),
        Example("a model that sees", (_IMAGES, _NEEDS, replace(_TEXT, has_processor=True))),
        Example("a verl that ignores them", (_IMAGES, DEMANDS, _TEXT)),
        Example(
            "images for a model of text",
            (_IMAGES, _NEEDS, _TEXT),
            "has images, but /models/qwen has no processor",
        ),
        Example("conversations without such a column", (tables(_TEXTS), _TALKS, _TEXT)),
        Example(
            "conversations in parts, which verl leaves as they are", (tables(_PARTS, _EMPTY), _TALKS, _TEXT)
        ),
        Example(
            "an empty column beside conversations",
            (tables(_TEXTS, _EMPTY), _TALKS, _TEXT),
            "has a column images, but /models/qwen has no processor",
        ),
    ]


@check("DATA110", phase="first batch", requires={"LOAD101"}, examples=_examples, since="0.2")
def media_without_processor(
    tables: DataTables,
    demands: DataDemands | Unknown,
    talks: ConversationDemands | Unknown,
    model: Model,
    configuration: Configuration | Unknown,
) -> Iterator[Finding]:
    """Rows contain images, videos or audio, but the model has no processor for them.

    ## Why it matters

    verl needs the model's processor for the first row that has such a value: `processor is needed to process
    multimodal data`. A model of text has none. The SFT trainer needs it for every row of a table that has
    such a column, even an empty one.

    ## How to fix

    Use a model that takes this input, or set `data.image_key`, `data.video_key` or `data.audio_key` to a
    column that does not exist. For the SFT trainer, these keys need a plus sign; or remove the column.
    """
    if model.has_processor:
        return
    found: list[tuple[Table, list[str], str, str]] = []
    if not isinstance(demands, Unknown):
        for table in readable(tables, demands):
            filled = [name for name in demands.media if name in table.filled]
            found.append((table, filled, listed(filled, 3), demands.read_from))
    if not isinstance(talks, Unknown):
        for table in tables.of("train"):
            named = [
                name for name in talks.media if table.kind(name) and _PLAIN in table.kind(talks.messages)
            ]
            found.append((table, named, f"a column {listed(named, 3)}", talks.read_from))
    for table, names, shown, read_from in found:
        if names and table.file.role != "val":
            yield Finding(
                f"{table.file.path} has {shown}, but {model.folder} has no processor",
                Evidence(listed(names, 3), "no values there, or a processor_config.json", read_from),
                location=location(table.file),
                remedy="use a model that takes this input, or remove the column",
                subject=Subject("file", table.file.path, ",".join(names)),
                stops=(EVERY_JOB,),
                **healed("DATA110", _correction(configuration, table, names)),
            )


def _correction(configuration: Configuration | Unknown, table: Table, names: list[str]) -> Correction | None:
    """Another name for columns without any value, so that verl reads none."""
    if isinstance(configuration, Unknown) or any(table.kind(name) not in _EMPTY_KINDS for name in names):
        return None
    values = {}
    for key, usual in _KEYS.items():
        value = configuration.get(key)
        if (usual if value in (None, MISSING) else value) in names:
            values[key] = next(
                name for name in _UNUSED if all(name != column.name for column in table.columns)
            )
    if len(values) != len(names):
        return None
    return settings(configuration, values, f"{listed(names, 3)} has no value in any row", "")

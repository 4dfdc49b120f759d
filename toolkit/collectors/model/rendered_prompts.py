"""What the chat template of the job's model makes of the training prompts.

It covers where the template may refuse them, or they may be too long.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.collectors.model.chat_template import ChatTemplate
from verl_doctor.toolkit.collectors.model.data_demands import DataDemands
from verl_doctor.toolkit.collectors.model.data_tables import DataTables
from verl_doctor.toolkit.collectors.model.model import BadFile, Model, read_json
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes import rendered as probe
from verl_doctor.toolkit.sources.python.source import read
from verl_doctor.toolkit.system.child import ending, run_probe

FILTER = "data.filter_overlong_prompts"
PROMPT = "data.max_prompt_length"
CONTEXT = "actor_rollout_ref.rollout.max_model_len"
_LIMIT = 20.0  # seconds: importing pyarrow takes about one
_MOST_SIGNS = 100_000  # in one argument of a program: Linux allows 131,072 bytes
_LONGEST = 512  # tokens: most data have a shorter prompt than a limit above this
_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
# The data set that renders each message of a conversation, what it renders first, and how verl tries a
# refused message again.
_TALKS, _PROBES = (
    "utils/dataset/multiturn_sft_dataset.py",
    b"self.generation_prompt = extract_system_prompt_and_generation(",
)
_RETRIES = re.compile(rb"^from .* import .*\bapply_chat_template\b", re.MULTILINE)
_GIVES_MORE = frozenset({"tools", "enable_thinking", "images", "videos"})
_REFUSES = "raise_exception"
# Settings that hand more to the template than the messages.
_MORE = (
    "data.apply_chat_template_kwargs",
    "data.tool_config_path",
    "data.function_tool_path",
    "actor_rollout_ref.rollout.multi_turn.tool_config_path",
    "actor_rollout_ref.rollout.multi_turn.function_tool_path",
)


@dataclass(frozen=True)
class RenderedPrompts:
    """What all `rows` of training data have in common.

    It is the message with which the template refuses them, or a least number of tokens.

    `shortest`: no prompt has fewer tokens; 0 where that is unknown. `whole`: there are no more rows than
    these.
    """

    rows: int
    refused: str = ""
    shortest: int = 0
    whole: bool = True


@dataclass(frozen=True)
class RefusedTalks:
    """The message with which the template refuses conversations that fine-tuning renders message by message.

    `probed`: it refuses what verl renders before any row, two messages of a user.
    """

    refused: str
    probed: bool


@collector(timeout=30)
def refused_talks(
    machine: Machine,
    configuration: Configuration,
    template: ChatTemplate,
    tables: DataTables,
    verl: VerlTrees,
    model: Model,
    interpreter: Interpreter,
) -> RefusedTalks | Unknown:
    """Render a user's empty message, and each message alone, with the target's Jinja.

    This is done if the template refuses anything.
    """
    column, given = configuration.get("data.messages_key"), tables.of("train")
    source = read(Path(verl.imported.folder, _TALKS))
    if not configuration.program.endswith("/trainer/sft_trainer.py") or not isinstance(column, str):
        return Absent("this job does no fine-tuning on conversations")
    if (
        configuration.get("data.custom_cls.path") not in (None, MISSING)
        or not isinstance(source, bytes)
        or _PROBES not in source
    ):
        return Absent("the data set may render conversations in another way")
    columns = {column.name for table in given for column in table.columns}
    if model.has_processor or model.own_code or columns & _GIVES_MORE:
        return Absent("a processor, the model's own code or further columns may change what is rendered")
    if any(configuration.get(key) not in (None, "", MISSING, {}) for key in _MORE):
        return Absent("the template is given more than the messages")
    if not given or any(
        table.file.kind != "parquet" or not table.kind(column).startswith("list<struct<") for table in given
    ):
        return Absent("no training table has a list of messages in each row")
    text, names = _template(machine, template)
    if _REFUSES not in text:
        return Absent("the template refuses nothing")
    spec = {
        "template": text,
        "names": names,
        "column": column,
        "retries": _RETRIES.search(source) is not None,
        "files": list(dict.fromkeys(table.file.path for table in given)),
        "alone": True,
    }
    found = _tried(machine, interpreter, spec)
    if isinstance(found, Unknown):
        return found
    if not found.get("refused"):
        return Absent("the template accepts conversations")
    return RefusedTalks(str(found["refused"]), probed=bool(found.get("probed")))


@collector(timeout=30)
def rendered_prompts(
    machine: Machine,
    configuration: Configuration,
    template: ChatTemplate,
    tables: DataTables,
    demands: DataDemands,
    model: Model,
    interpreter: Interpreter,
) -> RenderedPrompts | Unknown:
    """Render them with the target's Jinja.

    This is done if the template refuses any prompts, or a limit of tokens is low.
    """
    given = tables.of("train")
    columns = {column.name for table in given for column in table.columns}
    if model.has_processor or model.own_code or columns & set(demands.media):
        return Absent("a processor or the model's own code may render the prompts")
    if any(configuration.get(key) not in (None, "", MISSING, {}) for key in _MORE):
        return Absent("the template is given more than the messages")
    if not given or any(
        table.file.kind != "parquet" or not table.kind(demands.prompt).startswith("list<struct<")
        for table in given
    ):
        return Absent("no training table has a list of messages in each row")
    text, names = _template(machine, template)
    limits = [configuration.number(CONTEXT)]
    if configuration.get(FILTER) is True and (most := configuration.number(PROMPT)):
        limits.append(most + 1)
    limit = int(min((number for number in limits if number and number > 0), default=0))
    limit = limit if limit <= _LONGEST else 0
    if not text or not (limit or _REFUSES in text):
        return Absent("the template refuses nothing, and no limit of tokens is low")
    tokenizer = Path(template.folder, "tokenizer.json")
    spec = {
        "template": text,
        "names": names,
        "tokenizer": str(tokenizer) if os.path.isfile(tokenizer) else "",
        "limit": limit,
        "column": demands.prompt,
        "retries": configuration.get(FILTER) is not True,
        "files": list(dict.fromkeys(table.file.path for table in given)),
    }
    found = _tried(machine, interpreter, spec)
    if isinstance(found, Unknown):
        return found
    if not found.get("rows"):
        return Absent("the template accepts prompts, and they may be short enough")
    return RenderedPrompts(
        rows=int(found["rows"]),
        refused=str(found.get("refused") or ""),
        shortest=int(found.get("shortest") or 0),
        whole=bool(found["whole"]),
    )


def _tried(machine: Machine, interpreter: Interpreter, spec: dict[str, Any]) -> dict[str, Any] | Unknown:
    argument = json.dumps(spec)
    if len(argument) > _MOST_SIGNS:
        return Absent("the template is too long to be tried")
    result = run_probe(machine, interpreter.executable, probe, argument, timeout=_LIMIT)
    if isinstance(result, Unknown):
        return result
    output, found = result
    if not isinstance(found, dict):
        return Unknown(f"the prompts could not be rendered: {ending(output, _LIMIT)}")
    return found


def _template(machine: Machine, template: ChatTemplate) -> tuple[str, dict[str, str]]:
    """Return the template's text, "" if there may be several, and the special tokens that it may name."""
    content = read_json(Path(template.folder, "tokenizer_config.json"))
    config = {} if isinstance(content, BadFile) else content
    tokens = {name: config.get(name) for name in _TOKENS}
    named = {
        name: token.get("content") if isinstance(token, dict) else token for name, token in tokens.items()
    }
    text: object = template.text
    if not text and template.found_in.endswith(".jinja"):
        text = machine.read(template.found_in)
    elif not text and template.found_in.endswith("tokenizer_config.json"):
        text = config.get("chat_template")
    return text if isinstance(text, str) else "", {
        name: token for name, token in named.items() if isinstance(token, str)
    }

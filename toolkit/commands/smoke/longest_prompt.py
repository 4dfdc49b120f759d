"""An upper limit for the tokens of the longest prompt in a job's data: its number of bytes."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.model.data_files import DataFiles
from verl_doctor.toolkit.collectors.model.data_tables import DataTables
from verl_doctor.toolkit.engine.collect import Facts
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes import prompts
from verl_doctor.toolkit.system.child import run_probe

_LIMIT = 20.0  # seconds
_OF_TEMPLATE = 512  # tokens that a chat template adds, such as a system prompt
_OF_MESSAGE = 16  # tokens around each message: its role, and the marks of its beginning and end
# Settings that add to a prompt beyond the text of its messages, or replace the prompt.
_ADDITIONS = (
    "data.custom_cls.path",
    "data.tool_config_path",
    "data.apply_chat_template_kwargs",
    "actor_rollout_ref.rollout.multi_turn.tool_config_path",
    "actor_rollout_ref.rollout.multi_turn.function_tool_path",
    "actor_rollout_ref.model.custom_chat_template",
)
_PICTURES = ("data.image_key", "data.video_key", "data.audio_key")


def most_tokens(machine: Machine, facts: Facts, configuration: Configuration) -> int | None:
    """Return an upper limit for the tokens of a prompt of the job; None if unknown.

    A token of a byte-level vocabulary stands for at least one byte. `facts` are those of the configured job.
    """
    files, tables, interpreter = facts.get(DataFiles), facts.get(DataTables), facts.get(Interpreter)
    if isinstance(files, Unknown) or isinstance(tables, Unknown) or isinstance(interpreter, Unknown):
        return None
    read = {file.path: file for file in files.files if file.role != "named"}
    columns = {column.name for table in tables.tables for column in table.columns}
    readable = not files.elsewhere and all(
        file.kind == "parquet" and not file.trouble for file in read.values()
    )
    if not read or not readable or any(configuration.get(key) in columns for key in _PICTURES):
        return None
    if any(value is not MISSING and value for value in map(configuration.get, _ADDITIONS)):
        return None
    column = str(configuration.get("data.prompt_key"))
    result = run_probe(machine, interpreter.executable, prompts, column, *read, timeout=_LIMIT)
    reported = None if isinstance(result, Unknown) else result[1]
    if not isinstance(reported, list) or None in reported:
        return None
    return max(int(row["bytes"]) + _OF_MESSAGE * int(row["messages"]) for row in reported) + _OF_TEMPLATE

"""DATA112: the reward function reads fields that the rows do not have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.datasets._data import tables
from verl_doctor.checks.datasets._kinds import LONGEST, fields
from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.collectors.configuration.own_code import Read
from verl_doctor.toolkit.collectors.configuration.reward_function import RewardFunction
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch
from verl_doctor.toolkit.collectors.model.data_tables import Column, DataTables, Table
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Location, Subject, check
from verl_doctor.toolkit.text import listed

_MANAGERS = ("naive", "dapo")  # which let the function's exceptions pass
_NAMES = ("reward.reward_manager.name", "reward_model.reward_manager")
_PROGRAMS = (
    "/trainer/main_ppo.py",
    "/one_step_off_policy/main_ppo.py",
    "/fully_async_policy/fully_async_main.py",
)
_OF_VERL = re.compile(r"(?:^|/)verl[./](?:trainer|experimental)[./]")
_SINGLE = "single_turn_agent"
_LOOP = "actor_rollout_ref.rollout.agent.default_agent_loop"
# The user's own code, and tools, which may add fields.
_OWN = (
    "data.custom_cls.path",
    "data.datagen.path",
    "actor_rollout_ref.rollout.agent.agent_loop_manager_class",
    "actor_rollout_ref.rollout.agent.agent_loop_config_path",
    "reward.reward_manager.module.path",
    "actor_rollout_ref.model.external_lib",
)
_AS_STORED = frozenset(
    {"Value", "Sequence", "List", "LargeList", "ClassLabel"}
)  # features of `datasets` that leave values as they are
_OF_ARRAYS = frozenset(
    {"tolist", "item", "shape", "size", "dtype", "ndim", "astype", "flatten"}
)  # what a conversion to NumPy adds
_ADDED = frozenset({"num_turns", "rollout_reward_scores"})  # to extra_info, by verl
# Types of a row's values: what Python makes of them, and how that is named.
_KINDS: tuple[tuple[tuple[str, ...], type, str], ...] = (
    (("string", "large_string"), str, "text"),
    (("int", "uint"), int, "a number"),
    (("float", "double", "halffloat"), float, "a number"),
    (("bool",), bool, "a truth value"),
    (("list<", "large_list<"), list, "a list"),
    (("struct<",), dict, "a dictionary"),
)
_TEXT = "ground_truth"
_REWARD = RewardFunction(
    key="reward.custom_reward_function",
    path="/home/me/reward.py",
    name="compute_score",
    state="there",
    defined=True,
)


def _reading(parameter: str, name: str, *, is_item: bool = True) -> RewardFunction:
    key, path, function = _REWARD.key, _REWARD.path, _REWARD.name
    return RewardFunction(
        key=key,
        path=path,
        name=function,
        state="there",
        defined=True,
        names=(function,),
        reads=(Read(parameter=parameter, name=name, line=7, is_item=is_item),),
    )


def _own_program() -> Configuration:
    (found,) = configured()
    return replace(found, program="/home/me/train.py")


def _started(program: str) -> Launch:
    return Launch((), command=Command(module=program, words=(), path="run.sh", line=2))


def _json() -> DataTables:
    return DataTables(
        tuple(replace(table, file=replace(table.file, kind="jsonl")) for table in tables().tables)
    )


def _irrelevant(configuration: Configuration) -> str | None:
    if configuration.get("trainer.val_only") not in (False, None, MISSING):
        return "the job may score no row that it trains on"
    if not configuration.program.endswith(_PROGRAMS):
        return "another program may change rows, or how they are scored"
    own = next((key for key in _OWN if configuration.get(key) not in (None, "", MISSING)), "")
    if own:
        return f"{own} may change rows, or how they are scored"
    if configuration.get(_LOOP) not in (None, MISSING, _SINGLE):
        return "the agent loop may add fields to the rows"
    managers = {configuration.get(key) for key in _NAMES} - {None, MISSING}
    return None if managers <= set(_MANAGERS) else "the reward manager may catch what the function raises"


def _examples() -> list[Example]:
    return [
        Example("fields of the rows", (*configured(), tables(), _reading("extra_info", "split"))),
        Example("a field that verl adds", (*configured(), tables(), _reading("extra_info", "num_turns"))),
        Example("a method of texts", (*configured(), tables(), _reading(_TEXT, "strip", is_item=False))),
        Example(
            "a ground truth of unknown type",
            (*configured(), tables(Column(name="reward_model", kind="")), _reading(_TEXT, "answer")),
        ),
        Example(
            "a manager that catches exceptions",
            (*configured("+reward.reward_manager.name=limited"), tables(), _reading(_TEXT, "answer")),
        ),
        Example(
            "a job that only validates",
            (*configured("++trainer.val_only=True"), tables(), _reading("extra_info", "level")),
        ),
        Example("a program of the user's own", (_own_program(), tables(), _reading("extra_info", "level"))),
        Example(
            "a program of the user's own that starts verl's",
            (*configured(), tables(), _reading("extra_info", "level"), _started("/home/me/train.py")),
        ),
        Example(
            "verl's program by its file",
            (*configured(), tables(), _reading("extra_info", "level"), _started("verl/trainer/main_ppo.py")),
            "reads extra_info['level']",
        ),
        Example(
            "a JSON file, of which other rows may have more fields",
            (*configured(), _json(), _reading("extra_info", "level")),
        ),
        Example(
            "texts that datasets turns into objects",
            (*configured(), tables(features=("Json", "Value")), _reading(_TEXT, "answer")),
        ),
        Example(
            "a method of NumPy's arrays",
            (
                *configured(),
                tables(Column(name="reward_model", kind="struct<ground_truth: list<string>>")),
                _reading(_TEXT, "tolist", is_item=False),
            ),
        ),
        Example(
            "a field that the rows do not have",
            (*configured(), tables(), _reading("extra_info", "level")),
            "reads extra_info['level'], but extra_info has index, split",
        ),
        Example(
            "a text taken for a dictionary",
            (*configured(), tables(), _reading(_TEXT, "answer")),
            "reads ground_truth['answer'], but ground_truth is text",
        ),
        Example(
            "a number taken for a text",
            (
                *configured(),
                tables(Column(name="reward_model", kind="struct<ground_truth: int64, style: string>")),
                _reading(_TEXT, "strip", is_item=False),
            ),
            "reads ground_truth.strip, but ground_truth is a number",
        ),
    ]


@check(
    "DATA112",
    phase="first batch",
    applies=_irrelevant,
    requires=("CFG101", "CFG102", "CFG103", "CFG122", "CFG126", "DATA104", "DATA105"),
    examples=_examples,
    since="0.2",
)
def reward_reads_other_rows(
    tables: DataTables, reward: RewardFunction, launch: Launch | Unknown
) -> Iterator[Finding]:
    """The reward function reads fields that the rows do not have.

    ## Why it matters

    verl calls it with the row's `data_source`, `reward_model.ground_truth` and `extra_info`, in the types
    that the table has: a JSON text stays a text. The first answer then ends the job: `KeyError`, `string
    indices must be integers`, or `'int' object has no attribute 'strip'`. Only what the function reads for
    every row counts.

    ## How to fix

    Write the field when you generate the data, or read what the rows have; `extra_info.get(...)` returns None
    for a field that is missing.
    """
    trained = tables.of("train", "named")
    if any(_is_uncertain(table) for table in trained) or _starts_otherwise(launch):
        return
    for read in reward.reads:
        problems = [_problem(read, table.kind("reward_model"), table.kind("extra_info")) for table in trained]
        if not problems or not all(problems):
            continue  # the rows of another table may come first
        shown = f"{read.parameter}[{read.name!r}]" if read.is_item else f"{read.parameter}.{read.name}"
        yield Finding(
            f"{reward.path}: {reward.name} reads {shown}, but {problems[0]}",
            Evidence(f"{shown} (line {read.line})", "what the rows have", trained[0].file.path),
            location=Location(reward.path, read.line),
            remedy="read what the rows have, or write the field when you generate the data",
            subject=Subject("setting", f"{reward.key}.path", shown),
            stops=(EVERY_JOB,),
        )
        return


def _is_uncertain(table: Table) -> bool:
    """Return whether it is uncertain which fields and values the rows have.

    Agents may add fields, other rows may have more than the first ones, or `datasets` converts values.
    """
    return bool(
        set(table.agents) - {_SINGLE} or table.file.kind != "parquet" or set(table.features) - _AS_STORED
    )


def _starts_otherwise(launch: Launch | Unknown) -> bool:
    """Return whether a program of the user's own starts verl's: it may have replaced parts of verl before."""
    command = None if isinstance(launch, Unknown) else launch.command
    return command is not None and _OF_VERL.search(command.module) is None


def _problem(read: Read, reward_model: str, extra: str) -> str:
    """What the argument is instead of what is read of it; "" if it may have that or its type is unknown."""
    kind = {"solution_str": "string", _TEXT: fields(reward_model).get(_TEXT, ""), "extra_info": extra}.get(
        read.parameter, ""
    )
    found = next(((made, title) for names, made, title in _KINDS if kind.startswith(names)), None)
    if found is None or len(kind) >= LONGEST:
        return ""
    made, title = found
    if not read.is_item:
        return (
            ""
            if hasattr(made, read.name) or (made is not str and read.name in _OF_ARRAYS)
            else f"{read.parameter} is {title}"
        )
    if made is not dict:
        return f"{read.parameter} is {title}"
    has = fields(kind)
    added = _ADDED if read.parameter == "extra_info" else frozenset()
    return "" if read.name in has.keys() | added else f"{read.parameter} has {listed(tuple(has), 6)}"

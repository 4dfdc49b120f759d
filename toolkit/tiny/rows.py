"""The rows of tiny data: sums as text, as a conversation with a tool, or about a picture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

from verl_doctor.toolkit.tiny import picture
from verl_doctor.toolkit.tiny.columns import Columns

Kind = Literal["text", "multi-turn", "image"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_INSTRUCTION = 'Think step by step and put the answer behind "####".'
_COLOURS = {"red": (224, 32, 32), "green": (32, 160, 64), "blue": (32, 64, 224)}
_SIDES = (56, 84)  # pixels: height and width; multiples of two patches, so that no release scales the picture

# Enough words for the vocabulary of a tiny model.
_ENGLISH = """\
The system, a user, an assistant and a tool speak with each other. A function has a name, a description and parameters; its
arguments are an object of the type that they want: a string, an integer, a number or a list. You may call one or more
functions to help with the user query. First think about the reasoning process, then write down what follows from it. Let
us look at this picture: there is something red, green or blue before a white wall. Which colour would people choose, and
why should they? Every morning the children walk from their house to school, where thirty others wait under the old trees.
"""  # noqa: E501 - a tokenizer is made of it as it is

Row = dict[str, Any]


@dataclass(frozen=True)
class _Sum:
    number: int
    left: int
    right: int

    @property
    def question(self) -> str:
        return (
            f"Ann has {self.left} apples and buys {self.right} more. How many apples has Ann now? "
            f"{_INSTRUCTION}"
        )

    @property
    def answer(self) -> str:
        return str(self.left + self.right)

    @property
    def solution(self) -> str:
        return f"Ann has {self.left} + {self.right} = {self.answer} apples.\n#### {self.answer}"

    @property
    def colour(self) -> str:
        return [*_COLOURS][self.number % len(_COLOURS)]


def texts() -> list[str]:
    """Return the texts that train a tokenizer for such rows."""
    return [
        *(text for exercise in _sums(200, 0) for text in (exercise.question, exercise.solution)),
        _ENGLISH,
    ]


def pictures() -> dict[str, bytes]:
    """Return the pictures that rows name, as PNG."""
    height, width = _SIDES
    return {name: picture.plain(width, height, colour) for name, colour in _COLOURS.items()}


def rewarded(columns: Columns, kind: Kind, count: int, first: int, split: str) -> list[Row]:
    """Return rows for training with rewards.

    `first` is the number of the first sum; another number gives different rows.
    """
    return [
        _rewarded(columns, kind, exercise, index, split) for index, exercise in enumerate(_sums(count, first))
    ]


def supervised(columns: Columns, kind: Kind, count: int, first: int) -> list[Row]:
    """Return rows for fine-tuning on responses; none if the tree has no data set for them."""
    if "messages_key" not in columns.supervised and (
        kind != "text" or "response_key" not in columns.supervised
    ):
        return []
    return [_supervised(columns, kind, exercise) for exercise in _sums(count, first)]


def _sums(count: int, first: int) -> Iterator[_Sum]:
    for number in range(first, first + count):
        yield _Sum(number, 2 + number * 7 % 89, 2 + number * 5 % 83)


def _rewarded(columns: Columns, kind: Kind, exercise: _Sum, index: int, split: str) -> Row:
    info: Row = {"split": split, "index": index, "question": exercise.question, "answer": exercise.solution}
    row: Row = {
        "data_source": columns.source,
        columns.prompt: [{"role": "user", "content": exercise.question}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": exercise.answer},
        "extra_info": info,
    }
    if kind == "multi-turn":
        row[columns.prompt] = [
            {"role": "system", "content": "You help with sums."},
            {"role": "user", "content": f"Hello! I have a question about {exercise.left} apples."},
            {"role": "assistant", "content": "What is the question?"},
            {"role": "user", "content": exercise.question},
        ]
        of_tools = {
            "need_tools_kwargs": True,
            "tools_kwargs": {columns.tool.name: {"create_kwargs": {"ground_truth": exercise.answer}}},
        }
        info |= {name: value for name, value in of_tools.items() if name in columns.info}
        if columns.agent:
            row["agent_name"] = columns.agent
    if kind == "image":
        row[columns.prompt] = [
            {"role": "user", "content": f"<image>What colour is this? {exercise.question}"}
        ]
        row[columns.pictures] = [_picture(exercise)]
    return row


def _supervised(columns: Columns, kind: Kind, exercise: _Sum) -> Row:
    names = columns.supervised
    question = {"role": "user", "content": exercise.question}
    reply = {"role": "assistant", "content": exercise.solution}
    if kind == "multi-turn":
        arguments, result = columns.tool.called(exercise.left, exercise.right)
        call = {"type": "function", "function": {"name": columns.tool.name, "arguments": arguments}}
        messages = [
            {**question, "tool_calls": None},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": result, "tool_calls": None},
            {**reply, "tool_calls": None},
        ]
        tools = {names["tools_key"]: [columns.tool.schema]} if "tools_key" in names else {}
        return {names["messages_key"]: messages, **tools}
    if kind == "image" and "image_key" in names:
        seen = {"role": "user", "content": f"<image>What colour is this? {exercise.question}"}
        return {names["messages_key"]: [seen, reply], columns.pictures: [_picture(exercise)]}
    row: Row = {names["messages_key"]: [question, reply]} if "messages_key" in names else {}
    if "response_key" in names:  # for the data set of a question and its response, up to verl 0.7.0
        row |= {names["prompt_key"]: exercise.question, names["response_key"]: exercise.solution}
    return row


def _picture(exercise: _Sum) -> Row:
    """Return a picture in the form of verl's own data sets, but with a name instead of its bytes.

    The name is that of one of `pictures`.
    """
    return {"bytes": exercise.colour, "path": f"{exercise.colour}.png"}

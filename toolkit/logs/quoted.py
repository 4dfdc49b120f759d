"""Omits quoting lines of a log, because they are no evidence.

They quote a prompt, a model's response, a tool's result or a sandbox's attempt.

The names are those that verl 0.2 to 0.9.1 print (workers/reward_manager, utils/reward_score,
experimental/agent_loop, tools).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from verl_doctor.toolkit.logs.lines import Line

MARKS = ("[prompt]", "[response]", "[ground_truth]", "[score]", "<tool_response>", "</tool_response>")
"""Where a quotation begins and ends. `excerpt` keeps all of these lines."""

_SCORE = re.compile(r"\[score\](?: |$)")
_VALUE = re.compile(r"\[[a-z]\w*\](?: |$)")  # what a reward function returns in addition to its score
_MOST = 2000  # lines of one quotation
_FEW = 100  # lines of a quotation that need not be closed


@dataclass(frozen=True)
class _Kind:
    """A multi-line quotation: how its first line begins and what its last contains.

    It has at most `most` lines.

    If it is `loose`, a logger's line interrupts it; without an end, it continues for `most` lines.
    """

    begins: re.Pattern[str]
    ends: re.Pattern[str]
    most: int = _MOST
    loose: bool = False


_KINDS = (
    _Kind(re.compile(r"\[(?:prompt|response|ground_truth)\](?: |$)"), _SCORE),
    _Kind(re.compile(r".*<tool_response>(?!.*</tool_response>)"), re.compile("</tool_response>")),
    _Kind(re.compile(r"Solution string: "), re.compile(r"^-{10,}$"), _FEW, loose=True),
    _Kind(re.compile(r".*<\|im_start\|>(?!.*<\|im_end\|>)"), re.compile(r"<\|im_end\|>"), _FEW),
)
_ALONE = re.compile(
    r"Golden answers: |Extracted answer|sol = |(?:type [01] compilation|unable to get function) error = "
    r"|tmp_result=|(?:Standard input|Call-based) runtime error or time limit exceeded error = "
    r"|Failed check\d exception = |(?:not passed |@1 |==> )?outputs? = .*test outputs = "
    r"|Error: ?.* from are_equal_under_sympy|Error in math_verify compute_score|(?:Parsing"
    r"|Simplification|Numerical evaluation) timed out for |\[id=\w*,turn=\d+|Failed to (?:decode|parse) "
    r"(?:\S+ )?tool call: |Error executing tool |Case \d+: |.*<tool_response>.*</tool_response>"
    r"|.*<\|im_start\|>|\W{0,3}[\"'](?:input|inputs|prompt|prompts|raw_prompt|messages|question|output"
    r"|outputs|response|responses|gts|ground_truth|role|tool_calls|stdout|stderr|run_result"
    r"|compile_result|completion)[\"']: "
)


def without_quotations(lines: Sequence[Line]) -> list[Line]:
    """Return the lines that describe the run."""
    open_in: dict[str, tuple[_Kind, int]] = {}  # by process: the kind of quotation, and its first line
    scored: dict[str, int] = {}  # the line in which it last printed a score
    kept = []
    for at, line in enumerate(lines):
        begun = open_in.get(line.process)
        if begun is not None and (line.number - begun[1] > begun[0].most or (begun[0].loose and line.level)):
            del open_in[line.process]
            begun = None
        kind = next((kind for kind in _KINDS if kind.begins.match(line.text)), None)
        if (
            kind is not None
            and (begun is None or kind is begun[0])
            and (kind.loose or _is_closed(kind, lines, at))
        ):
            begun = open_in.setdefault(line.process, (kind, line.number))
        is_value = line.number - scored.get(line.process, -_FEW) == 1 and _VALUE.match(line.text)
        if _SCORE.match(line.text) or is_value:
            scored[line.process] = line.number
        if begun is None and not is_value and not _ALONE.match(line.text):
            kept.append(line)
        if begun is not None and begun[0].ends.search(line.text):
            del open_in[line.process]
    return kept


def _is_closed(kind: _Kind, lines: Sequence[Line], at: int) -> bool:
    """Return whether the same process printed the end of the quotation that begins here.

    The end must be among the lines.
    """
    begun = lines[at]
    behind = (lines[other] for other in range(at + 1, len(lines)))
    near = takewhile(lambda line: line.number <= begun.number + kind.most, behind)
    return any(line.process == begun.process and kind.ends.search(line.text) for line in near)

"""The first line of the answer: what the logs show, in one or two words and a sentence."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Literal

from verl_doctor.toolkit.logs.answer import Answer
from verl_doctor.toolkit.logs.blame import Fault
from verl_doctor.toolkit.logs.causes import fault_of, name_of
from verl_doctor.toolkit.logs.lines import shown
from verl_doctor.toolkit.logs.recognised import Kind as FileKind
from verl_doctor.toolkit.logs.stage import STAGES
from verl_doctor.toolkit.rule import WHEN

OK, FIRST_CAUSE, NOT_DETERMINED = "OK", "FIRST CAUSE", "NOT DETERMINED"
YOUR_CODE, YOUR_CONFIGURATION = "YOUR CODE", "YOUR CONFIGURATION"
_WORDS: dict[Fault | Literal["environment"], str] = {
    "environment": FIRST_CAUSE,
    "configuration": YOUR_CONFIGURATION,
    "code": YOUR_CODE,
    "launch": YOUR_CONFIGURATION,
    "program": FIRST_CAUSE,
}
_NAMED = 3  # logs named in one sentence


def headline(answer: Answer) -> tuple[str, str]:
    """Return a status of one or two words, and the sentence that follows it."""
    reading = answer.reading
    if reading.first is not None:
        code, title = name_of(reading.first)
        when = WHEN[reading.first.phase][0] if reading.first.phase else ""
        when = STAGES.get(reading.first.stage, when)
        when = f" ({when})" if when else ""
        named = f": {', '.join(reading.first.settings)}" if reading.first.settings else ""
        return _WORDS[fault_of(reading.first)], f"{code}: {title}{shown(named)}{when}"
    error = reading.error
    if error is None:
        if reading.consequences:
            sentence = "a process ended, and these logs do not show why"
        elif answer.is_empty:
            named = ", ".join(answer.files[:_NAMED])
            sentence = f"nothing was read: {named} {'is' if len(answer.files) == 1 else 'are'} empty"
        elif answer.unread:
            sentence = (
                f"no sign of a failure, but not all of {', '.join(answer.unread[:_NAMED])} could be read"
            )
        elif answer.other_files:
            sentence = _no_log(answer.other_files)
        elif any(beside.kind not in {"hint", "note"} for beside in reading.hints):
            how = "finished" if reading.finished else "went on"
            return OK, f"the training {how}, and no complaint in the logs stopped it"
        else:
            silent = "" if reading.has_step or reading.finished else "; they show no training step and no end"
            return OK, f"these logs show no failure{silent}"
    elif error.signature is not None and error.signature.kind == "ended":
        sentence = f"{_lower(error.signature.title)}; nothing before it failed"
    elif error.signature is not None and error.signature.kind == "job":
        sentence = f"no fault of the environment: {_lower(error.signature.title)}"
    elif error.signature is not None:
        sentence = f"the logs show only a consequence: {_lower(error.signature.title)}"
    else:
        sentence = (
            f"something failed, and {'this log does' if len(answer.files) == 1 else 'these logs do'} not "
            "show why"
        )
    return NOT_DETERMINED, sentence


def _no_log(files: Mapping[str, FileKind]) -> str:
    """Return what the files are instead of logs."""
    for name, kind in files.items():
        if kind == "trace":
            return f"{name} shows a script's commands only; it ended, or still runs, before it started Python"
        if kind != "unknown":
            judged = f": verl-doctor check {shlex.quote(name)} judges it" if kind == "shell script" else ""
            return f"{name} is a {kind}, not a log{judged}"
    named = ", ".join(list(files)[:_NAMED])
    return f"nothing in {named} is output of verl, Ray, vLLM, torch, Python, a launcher or a scheduler"


def _lower(title: str) -> str:
    """Return a title as it reads inside a sentence: lowercase its article, but not a name such as Slurm."""
    first = title.partition(" ")[0]
    return title[:1].lower() + title[1:] if first in {"A", "An", "The"} else title

"""Judge steps by trials: the lowest rungs of `verl-doctor smoke`, and the DEBUG run of the launch script."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from verl_doctor.toolkit.commands.checklist.checklist import Invocation, Judgement
from verl_doctor.toolkit.commands.script.variant import digest_of, made_from, path_of
from verl_doctor.toolkit.commands.smoke import trial_cache
from verl_doctor.toolkit.commands.smoke.trial_cache import Climbed, Logged
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.logs.lines import shown
from verl_doctor.toolkit.logs.logged_error import LoggedError
from verl_doctor.toolkit.logs.reading import diagnose
from verl_doctor.toolkit.logs.sources import UnreadableError, opened, sources_of

QUICK = (1, 2)
"""The rungs of the quick test."""

_REHEARSAL = 5
# verl's console logger; step 0 is the validation before training (verl/utils/logger/aggregate_logger.py).
_STEP = re.compile(rb"\bstep:[1-9]\d* - ")
_PIECE = 2**20
_OVERLAP = 64
_SHELL = (".sh", ".bash", "")


def judge_quick_test(run: Session, facts: Collection, invocation: Invocation) -> list[Judgement]:
    """Judge whether the quick test passed with the present environment."""
    do = invocation.again("--run")
    climb = trial_cache.recall(run, Climbed)
    rungs = {} if climb is None else {rung.number: rung for rung in climb.run.rungs}
    if climb is None or not any(number in rungs for number in QUICK):
        return [Judgement("open", ("not tried here yet",), do)]
    if since := trial_cache.changed(climb.conditions, trial_cache.conditions(run, facts)):
        return [Judgement("open", (f"tried on {climb.when}, but since then {since}",), do)]
    tried = [rungs[number] for number in QUICK if number in rungs]
    for rung in tried:
        if rung.status == "failed":
            sentence = f"rung {rung.number}, {rung.name}, fails: {rung.cause} (tried on {climb.when})"
            return [Judgement("failed", (sentence, *filter(None, (rung.remedy,))), do)]
    if len(tried) < len(QUICK) or any(rung.status == "not reached" for rung in tried):
        return [Judgement("open", (f"only partly tried on {climb.when}",), do)]
    on = "the GPUs" if climb.run.device == "cuda" else "the CPU"
    names = " and ".join(f"{rung.name} ({rung.status})" for rung in tried)
    return [Judgement("done", (f"{names}, tried on {climb.when} on {on}; nothing has changed since",))]


def judge_debug_run(
    run: Session, facts: Collection, log: Path | None, arguments: str, invocation: Invocation
) -> list[Judgement]:
    """Judge whether this script has a DEBUG variant, and whether its first step was logged."""
    if not run.target.files or run.target.files[0].suffix not in _SHELL:
        target = replace(run.target, words=())  # a script is named instead of the command
        do = f"{replace(invocation, target=target).again()} LAUNCH_SCRIPT"
        return [Judgement("open", ("no launch script is named",), do)]
    script = run.target.files[0]
    variant = path_of(script, "DEBUG")
    make = f"verl-doctor script --debug{arguments}"
    if not os.path.isfile(variant):
        return [Judgement("open", (f"{variant.name} does not exist next to {script.name}",), make)]
    try:
        origin, content = made_from(variant.read_text("utf-8", "replace")), script.read_bytes()
    except OSError as error:
        return [Judgement("unknown", (f"{error.filename} cannot be read: {error.strerror}",))]
    if origin is None:
        return [
            Judgement(
                "open",
                (f"{variant.name} does not record from which {script.name} it was made",),
                _again(variant, make),
            )
        ]
    if digest_of(content) != origin:
        return [
            Judgement(
                "open",
                (f"{script.name} has changed since {variant.name} was made from it",),
                _again(variant, make),
            )
        ]
    made = Judgement(None, (f"{variant.name} was made from the present {script.name}",))
    if log is not None and (fault := _fault_of(log, variant)) is not None:
        return [made, fault]
    if logged := steps_logged(run, facts, log):
        return [made, Judgement("done", (logged,))]
    quoted = shlex.quote(str(variant))
    do = f"bash {quoted} 2>&1 | tee debug.log; {replace(invocation, log='debug.log').again()}"
    return [made, Judgement("open", (_why_open(run, facts),), do)]


def _again(variant: Path, make: str) -> str:
    return f"mv {shlex.quote(str(variant))} {shlex.quote(f'{variant}.old')} && {make}"


def steps_logged(run: Session, facts: Collection, log: Path | None) -> str:
    """Return evidence that a training step was logged with the present environment; "" if there is none."""
    if not run.target.files:
        return ""
    now = _with_variant(run, facts)
    variant = path_of(run.target.files[0], "DEBUG")
    if log is not None and _fault_of(log, variant) is None:
        trial_cache.keep_log(run, f"{log}:{first_step(log)}", now)
    kept = trial_cache.recall(run, Logged)
    if kept is not None and not trial_cache.changed(kept.conditions, now):
        return f"a step was logged: {kept.where} (seen on {kept.when})"
    climb = trial_cache.recall(run, Climbed)
    if climb is not None and not trial_cache.changed(climb.conditions, trial_cache.conditions(run, facts)):
        rung = next((rung for rung in climb.run.rungs if rung.number == _REHEARSAL), None)
        if rung is not None and rung.status == "passed":
            return f"a step was rehearsed with {run.target.files[0].name} on {climb.when}"
    return ""


def _with_variant(run: Session, facts: Collection) -> dict[str, str]:
    variant = path_of(run.target.files[0], "DEBUG")
    return {**trial_cache.conditions(run, facts), variant.name: trial_cache.digest_of(variant)}


def _why_open(run: Session, facts: Collection) -> str:
    kept = trial_cache.recall(run, Logged)
    if kept is None:
        return "its first step has not been logged yet"
    since = trial_cache.changed(kept.conditions, _with_variant(run, facts))
    return f"a step was logged ({kept.where}, seen on {kept.when}), and since then {since}"


def first_step(log: Path) -> int | None:
    """Return the line in a log, or a folder's logs, where verl reports a step; None if there is none."""
    for source in sources_of((str(log),)):
        with contextlib.suppress(UnreadableError), opened(source) as read:
            if (line := _line_of_step(read)) is not None:
                return line
    return None


def _line_of_step(read: Callable[[int], bytes]) -> int | None:
    line, tail = 1, b""
    while piece := read(_PIECE):
        text = tail + piece
        if match := _STEP.search(text):
            return line + text.count(b"\n", 0, match.start())
        tail = text[-_OVERLAP:]
        line += text.count(b"\n", 0, len(text) - len(tail))
    return None


def _fault_of(log: Path, variant: Path) -> Judgement | None:
    """Return why a log does not prove that the variant made a step; None if it does."""
    again = f"bash {shlex.quote(str(variant))}"
    if log.stat().st_mtime < variant.stat().st_mtime:
        return Judgement("open", (f"{log} is older than {variant.name}",), again)
    if first_step(log) is not None:
        return None
    reading = diagnose(sources_of((str(log),))).reading
    first: LoggedError | None = reading.causes[0] if reading.causes else reading.error
    if first is None:
        return Judgement("open", (f"{log} shows neither a step nor an error",), again)
    code = f"{first.signature.code}: " if first.signature and first.signature.code else ""
    sentence = f"{log} shows no step; the first error is {code}{shown(first.words)} (line {first.number})"
    return Judgement("failed", (sentence,), f"verl-doctor logs {shlex.quote(str(log))}")

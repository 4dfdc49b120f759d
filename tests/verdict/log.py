"""What a log shows of how a job went: whether it trained, and else where it got to and what it raised."""

from __future__ import annotations

import re

from verdict.case import Case, Outcome, Real

from verl_doctor.toolkit.rule import Phase

# What the log of verl 0.9.1 shows when a phase has begun.
_MARKS: tuple[tuple[Phase, str], ...] = (
    ("import", r"main_ppo|sft_trainer"),
    ("ray", r"ray init kwargs|INFO worker\.py"),
    ("workers", r"\(\w*TaskRunner\w* pid=\d+\)|main_task pid=|^dataset len|in run_sft$"),
    ("engine", r"vLLMHttpServer pid="),
    ("first batch", r"Training Progress: +0%|^Epoch 1/\d+: +0%|, in fit$"),
)
# What a traceback shows once batches are made.
_LATER: tuple[tuple[Phase, str], ...] = (
    ("first update", r", in _?(update_actor|update_critic|train_mini_batch|train_batch)$"),
    ("first validation", r", in _?validate$"),
    ("checkpoint", r", in _?save_checkpoint$"),
)
_RAISED = re.compile(
    r"^(?:\([^)]*\) |\[rank\d+\]: ?)*(?:ERROR [\d-]+ [\d:]+ \[[^\]]*\] )?((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Invalid|NotFound|Failed)\w*)\b:? ?(.*)$"
)
_PASSED_ON = re.compile("RayTaskError|ActorDiedError|ChildFailedError")
_CHAINED = re.compile(r"exception was the direct cause of|During handling of the above exception")
_NO_MODULE = re.compile(
    r"^.*: (No module named \S+)$|^.*Error while finding module specification for .*: (No module named \S+?)\)$"
)
_SHELL = re.compile(r"^\S+: line \d+: (.*)$|^\S*python\S*: (can't open file .*)$")


def plain(text: str) -> str:
    """A log without colours, and with carriage returns as ends of lines."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\r", "\n")


def judged(case: Case, code: int | None, text: str) -> Real:
    """What happened. The phase and the exception of a failure are a first guess: a person has read the log of each."""
    if code == 0 and all(re.search(pattern, text) for pattern in case.seen):
        return Real(case.name, "trained", 0, exit=0)
    outcome: Outcome = "hung" if code is None else "died"
    if "killed due to memory pressure" in text:  # by Ray, because of whatever else the machine did
        outcome = "undecided"
    lines = text.splitlines()
    raised = [(number, found) for number, line in enumerate(lines) if (found := _RAISED.match(line))]
    raised = [error for error in raised if not _PASSED_ON.search(error[1][1])]
    if raised:
        (number, found), *later = raised
        chain = f"{found[1]}: {found[2]}"
        for after, other in later:
            if not any(_CHAINED.search(line) for line in lines[number:after]):
                break
            number, chain = after, f"{other[1]}: {other[2]}"
        turned = "" if chain.startswith(f"{found[1]}: ") else chain[:300]
        return Real(case.name, outcome, 0, phase_in(text), found[1], found[2][:300], turned, code)
    for found in filter(None, map(_NO_MODULE.match, lines)):
        return Real(case.name, outcome, 0, "import", "", (found[1] or found[2]).rstrip(")"), exit=code)
    if by_shell := next(filter(None, map(_SHELL.match, lines)), None):
        return Real(case.name, outcome, 0, "shell", "", by_shell[1] or by_shell[2], exit=code)
    return Real(case.name, outcome, 0, phase_in(text), exit=code)


def phase_in(text: str) -> Phase:
    """Where a job had got to."""
    begun: Phase = "shell"
    for name, pattern in _MARKS:
        if re.search(pattern, text, re.MULTILINE):
            begun = name
    if begun == "first batch":
        return next((name for name, pattern in _LATER if re.search(pattern, text, re.MULTILINE)), begun)
    if ", in validate_config\n" in text:  # older releases validate in the task runner
        return "validation"
    if begun != "import":
        return begun
    return "composition" if re.search(r"^(hydra|omegaconf)\.errors", text, re.MULTILINE) else "import"

"""The name, the fault and the remedy of a cause, as every form of the answer gives them."""

from __future__ import annotations

from typing import Literal

from verl_doctor.toolkit.logs.blame import Blame, Fault
from verl_doctor.toolkit.logs.conditions import fitting
from verl_doctor.toolkit.logs.lines import shown
from verl_doctor.toolkit.logs.logged_error import LoggedError


def name_of(error: LoggedError) -> tuple[str, str]:
    """Return the code and the title of a first cause. Raises ValueError for anything else."""
    if error.blame is not None:
        return error.blame.code, shown(_title_of(error, error.blame))
    if error.signature is None:
        raise ValueError(error.words)
    return error.signature.code, error.signature.title


def _title_of(error: LoggedError, blame: Blame) -> str:
    """Return the title of a known exception, with its place; otherwise where the fault lies."""
    if error.signature is None or not error.signature.remedy or blame.fault != "program":
        return blame.title
    return f"{error.signature.title}, raised at {blame.place}" if blame.place else error.signature.title


def fault_of(error: LoggedError) -> Fault | Literal["environment"]:
    """Return where the fault of a first cause lies."""
    if error.blame is not None:
        return error.blame.fault
    return (
        "configuration" if error.signature is not None and error.signature.is_of_settings else "environment"
    )


def remedy_of(error: LoggedError) -> str:
    """Return what helps."""
    known = (
        error.signature.at.get(error.stage) or error.signature.remedy if error.signature is not None else ""
    )
    own = shown(error.blame.remedy) if error.blame is not None and (error.blame.settings or not known) else ""
    advice = shown(error.advice)
    if error.signature is not None and error.signature.otherwise and not advice:
        known = f"{error.signature.otherwise}; {known}"
    if advice and error.blame is not None and error.blame.fault != "code" and not error.blame.settings:
        own = ""
    if error.blame is not None and error.blame.settings and error.blame.settings[0] in advice:
        own = ""
    if error.specific and error.blame is not None and error.blame.fault == "program":
        own = ""
    if known and error.signature is not None and error.signature.kind == "job" and not error.signature.named:
        advice = ""  # the signature has what resolved this very complaint
    if advice and error.settings and error.signature is not None and not error.signature.named:
        known = ""  # the advice is on the very setting
    return "; ".join(
        filter(
            None,
            (
                shown(error.specific),
                own,
                advice,
                fitting(known, error.traits, f"{error.specific}; {own}; {advice}"),
            ),
        )
    )


def place_in_job(error: LoggedError) -> str:
    """Return the place in the job's own code that raised an error, "" if it was raised elsewhere."""
    return shown(error.blame.place) if error.blame is not None and error.blame.fault == "code" else ""

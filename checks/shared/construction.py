"""Shared by the rules about the construction: the finding for a stage, its location, and examples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.construction.construction import BAD, Built, Construction, Frame
from verl_doctor.toolkit.collectors.launch.launch import COMMAND_LINE
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Finding, Location, Phase, Subject, Unjudged

_LONGEST = 300  # characters of an exception's message that a finding shows
# The next step where an import fails that no setting of the job names: changing a setting does not help.
_IMPORTS = {
    "ModuleNotFoundError": (
        "install the package that the message names, or add the folder of your own module to PYTHONPATH"
    ),
    "ImportError": "install releases of the packages in the message that fit together",
}
SOUND = Construction((Built(stage="composition", ended="ok"),))


def broken(stage: str, kind: str, text: str) -> Construction:
    """Facts of an example in which one stage breaks."""
    frame = Frame(file="/env/verl/x.py", line=12, function="f", of="verl")
    return Construction(
        (Built(stage=stage, ended="breaks", seconds=0.1, kind=kind, text=text, frames=(frame,)),)
    )


def findings(
    construction: Construction,
    stages: Mapping[str, str],
    phase: Phase,
    remedy: str,
    other_phases: Mapping[str, Phase] | None = None,
) -> Iterator[Finding]:
    """Yield a finding for each fault of these stages, given with their descriptions.

    `other_phases` overrides the phase of some stages.
    """
    for built in construction.bad(*stages):
        when = (other_phases or {}).get(built.stage, phase)
        yield finding(built, stages[built.stage], when, remedy)


def finding(built: Built, doing: str, phase: Phase, remedy: str) -> Finding:
    """The finding for a stage. A stage that hangs may only be slow, so it stops nothing."""
    raised = built.frames[-1] if built.frames else None
    verls = built.frame("user") or built.frame("verl") or built.frame("vllm") or raised
    certain = built.ended == "breaks"
    if certain and built.kind not in _IMPORTS:
        remedy = f"{remedy}; verl-doctor fix --deep tries other settings until verl accepts the job"
    subject = Subject("setting", built.key) if built.key else Subject("symbol", built.kind, built.stage)
    return Finding(
        f"{doing} {_how(built)}",
        Evidence(
            found=built.word or built.kind or built.ended,
            wanted="what verl's own code accepts",
            read_from=str(verls) if verls else "",
        ),
        location=_location(built),
        remedy=remedy if built.word else _IMPORTS.get(built.kind, remedy),
        severity=None if certain else "warning",
        subject=subject,
        stops=(EVERY_JOB,) if certain else (),
        phase=phase,
    )


def _how(built: Built) -> str:
    if built.ended == "hangs":
        return f"does not end within {built.seconds:.0f} s" if built.seconds else f"hangs: {built.text}"
    if built.ended == "crashes":
        return f"crashes the process: {built.kind or built.text.partition(chr(10))[0] or 'it ended at once'}"
    return f"fails: {built.kind}: {built.text[:_LONGEST]}"


def _location(built: Built) -> Location | None:
    """The word in the script, otherwise the line in the user's code."""
    if built.path:
        return Location(built.path, None if built.path == COMMAND_LINE else built.line or None)
    user = built.frame("user")
    return Location(user.file, user.line) if user else None


def reached(stages: Iterable[str]) -> Callable[[Construction], Unknown | None]:
    """Return the condition for judging a rule about these stages: the construction reached one of them."""

    def applies(construction: Construction) -> Unknown | None:
        ends = [built.ended for built in construction.stages if built.stage in names]
        if not ends or any(ended != "not reached" for ended in ends):
            return None
        stopped = next(
            (built.stage for built in construction.stages if built.ended in BAD), "an earlier stage"
        )
        return Unknown(f"the construction did not get beyond {stopped}")

    names = frozenset(stages)
    return applies


def unjudged(stages: Iterable[str]) -> Callable[[Construction, Configuration], tuple[Unjudged, ...]]:
    """Return the function that lists which of these stages could not be judged, and why."""

    def left_open(construction: Construction, configuration: Configuration) -> tuple[Unjudged, ...]:
        return tuple(
            Unjudged(f"the construction's stage {built.stage}", built.text, Location(configuration.program))
            for built in construction.stages
            if built.stage in names and built.ended in ("not there", "not judged")
        )

    names = frozenset(stages)
    return left_open

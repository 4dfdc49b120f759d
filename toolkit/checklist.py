"""The migration checklist: steps as data, their state computed from a report, never merely printed."""

from __future__ import annotations

import importlib.resources
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from verl_doctor.toolkit import toml
from verl_doctor.toolkit.config import Config
from verl_doctor.toolkit.fact_markers import Markers
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.markdown_text import escaped
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.text import counted, wrapped

State = Literal["done", "failed", "open", "unknown"]
_MARKS: Mapping[State, str] = {"done": "x", "failed": "!", "open": " ", "unknown": "?"}


@dataclass(frozen=True)
class Step:
    """One step of the move, its state, and the evidence for it. `do` is empty when nothing is left to do."""

    title: str
    state: State
    evidence: str
    do: str = ""


def steps(report: Report, config: Config, markers: Markers | Unknown) -> tuple[Step, ...]:
    """Judge every step by the rules that concern it, or by the configured paths."""
    text = (
        importlib.resources.files("verl_doctor.checks")
        .joinpath("data/migration_steps.toml")
        .read_text("utf-8")
    )
    return tuple(_step(entry, report, config, markers) for entry in toml.loads(text)["step"])


def _step(entry: Mapping[str, Any], report: Report, config: Config, markers: Markers | Unknown) -> Step:
    if "by_hand" in entry:
        return Step(entry["title"], "open", "not judged: it is yours to run", entry["by_hand"])
    state, evidence = _sites(config) if entry.get("sites") else _by_rules(entry["judged_by"], report)
    if entry.get("markers"):
        evidence = f"{evidence}; {_marked(markers)}"
    return Step(entry["title"], state, evidence, "" if state == "done" else entry["do"])


def _by_rules(codes: list[str], report: Report) -> tuple[State, str]:
    results = [result for result in report.results if result.code in codes]
    bad = [
        f"{r.code} {finding.message}" for r in results for finding in r.findings if finding.severity != "info"
    ]
    if bad:
        failing = any(result.status == "fail" for result in results)
        more = f" (and {counted(len(bad) - 1, 'more finding')})" if len(bad) > 1 else ""
        return ("failed" if failing else "open"), bad[0] + more
    unjudged = [
        f"{r.code} {r.status}: {r.reason}"
        for r in results
        if r.status in {"error", "skipped", "not_applicable"}
    ]
    if unjudged or not results:
        return "unknown", "; ".join(unjudged) or "no rule for it is installed"
    return "done", f"{', '.join(result.code for result in results)} passed"


def _sites(config: Config) -> tuple[State, str]:
    if not config.sites:
        return "open", "no paths are configured"
    missing = [f"{name} = {path}" for name, path in config.sites.items() if not os.path.exists(path)]
    if missing:
        return "failed", f"not on this machine: {', '.join(missing)}"
    return "done", f"{counted(len(config.sites), 'path')} of {config.path} exist"


def _marked(markers: Markers | Unknown) -> str:
    if isinstance(markers, Unknown):
        return markers.reason
    return f"{counted(len(markers.lines), 'marked line')} in the verl tree"


def exit_code(done: tuple[Step, ...]) -> int:
    """0 when no step failed, 1 when one did, 3 when one could not be judged."""
    states = {step.state for step in done}
    return 1 if "failed" in states else 3 if "unknown" in states else 0


def as_text(done: tuple[Step, ...], width: int | None = None) -> Iterator[str]:
    """The list for a person, wrapped to the columns of a terminal."""
    blank = " " * 7
    finished = sum(step.state == "done" for step in done)
    yield f"{finished} of {counted(len(done), 'step')} done"
    for number, step in enumerate(done, 1):
        yield ""
        yield f"[{_MARKS[step.state]}] {number}. {step.title}: {step.state}"
        yield from wrapped(step.evidence, width, indent=blank, hanging=blank)
        if step.do:
            yield from wrapped(f"do: {step.do}", width, indent=blank, hanging=f"{blank}    ")


def as_markdown(done: tuple[Step, ...]) -> Iterator[str]:
    """The list for a ticket."""
    for step in done:
        yield f"- [{'x' if step.state == 'done' else ' '}] {escaped(step.title)}: **{step.state}**, {escaped(step.evidence)}"
        if step.do:
            yield f"  - {escaped(step.do)}"


def as_document(done: tuple[Step, ...]) -> dict[str, Any]:
    """The list as JSON types."""
    return {"schema_version": 1, "steps": [asdict(step) for step in done]}

"""From the shared options to an examination: the source, the session, and the report in the chosen form."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from verl_doctor.toolkit.cluster.node_request import RequestedNodes
from verl_doctor.toolkit.console.view import show
from verl_doctor.toolkit.engine import session
from verl_doctor.toolkit.engine.examination import OneMachine, Source
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.options.rule_options import Rules
from verl_doctor.toolkit.options.view_options import View
from verl_doctor.toolkit.render.render import ReportAnswer
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.target import Options, Target
from verl_doctor.toolkit.text import harmless, listed


def are_several(facts: Sequence[Path]) -> bool:
    """Return whether --facts names the files of several machines."""
    return len(facts) > 1 or any(os.path.isdir(path) for path in facts)


def source_of(facts: Sequence[Path], nodes: RequestedNodes | None, *, with_kept_nodes: bool = True) -> Source:
    """Return the source given by --facts, --cluster or --nodes; this machine by default.

    `with_kept_nodes`: the nodes in a snapshot are judged too, not only its own machine.
    """
    if are_several(facts):
        from verl_doctor.toolkit.cluster.examination import FactsFiles  # noqa: PLC0415 - a plain check does without

        return FactsFiles(tuple(facts))
    if facts and with_kept_nodes:
        from verl_doctor.toolkit.snapshot.examination import SnapshotFile  # noqa: PLC0415 - see above

        return SnapshotFile(facts[0])
    if nodes is not None:
        from verl_doctor.toolkit.cluster.examination import OtherNodes  # noqa: PLC0415 - see above

        return OtherNodes(nodes)
    return OneMachine()


def announced_session(options: Options, rules: Rules, view: View, facts: Sequence[Path] = ()) -> Session:
    """Open the session; the first line on stderr names what is examined."""

    def announce(target: Target) -> None:
        if view.form == "text":
            files = [
                f"{'the facts files in' if os.path.isdir(path) else 'facts file'} {path}" for path in facts
            ]
            where = listed(files, 2) if facts else f"{target.python} ({target.chosen_why})"
            print(f"verl-doctor {session.version()} examines {harmless(where)}", file=sys.stderr, flush=True)
            if target.passed_over and not facts:
                print(f"  skipped: {harmless(target.passed_over)}", file=sys.stderr)

    return session.open_session(
        options,
        select=rules.select,
        ignore=rules.ignore,
        deep=rules.deep,
        facts_file=facts[0] if facts else None,
        announce=announce,
    )


def show_report(report: Report, run: Session, view: View, code: int) -> int:
    """Show the report of a command that ends with `code`, and return that code."""
    answer = ReportAnswer(report, code, view.verbose, run.registry.checks)
    undo = "verl-doctor undo --list shows what was changed" if report.applied else ""
    return show(answer, view.form, view.output, next_step=undo)

"""The command `checklist`: the steps of moving to another cluster, each with its state."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import click

from verl_doctor.toolkit.cluster.node_request import RequestedNodes
from verl_doctor.toolkit.commands.checklist.answer import ChecklistAnswer
from verl_doctor.toolkit.commands.checklist.checklist import Checklist
from verl_doctor.toolkit.console.progress import Progress
from verl_doctor.toolkit.console.streams import nothing_on_stdout
from verl_doctor.toolkit.console.view import show
from verl_doctor.toolkit.engine.examination import Request, examine
from verl_doctor.toolkit.engine.session import Session, open_session
from verl_doctor.toolkit.options.node_options import node_options
from verl_doctor.toolkit.options.target_options import job_options, target_options
from verl_doctor.toolkit.options.value_types import PATH
from verl_doctor.toolkit.options.view_options import answer_options
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.snapshot import snapshot
from verl_doctor.toolkit.snapshot.snapshot import Snapshot
from verl_doctor.toolkit.target import Options, UsageError


@click.command(
    epilog=(
        "Exit codes: 0 all steps are done, 1 one failed or is open, 2 wrong usage, 3 one could not be "
        "checked."
    )
)
@target_options
@job_options
@node_options
@click.option(
    "--from",
    "old",
    type=PATH,
    metavar="OLD",
    help="The snapshot that `verl-doctor snapshot OLD` wrote on the cluster where the job works.",
)
@click.option("--run", "run_them", is_flag=True, help="Run the quick test: verl-doctor smoke --up-to 2.")
@click.option("--log", type=PATH, metavar="FILE", help="The log of the DEBUG run.")
@answer_options
def checklist(
    *,
    options: Options,
    nodes: RequestedNodes | None,
    old: Path | None,
    run_them: bool,
    log: Path | None,
    form: str,
    file: Path | None,
) -> int:
    """Show the progress of a move to another cluster.

    Each run checks every step again and prints the next command. The result of a trial counts until
    the environment, the script or the tree changes.
    """
    from verl_doctor.toolkit.commands.checklist.steps import Look, steps  # noqa: PLC0415 - it brings all that steps are judged by

    with nothing_on_stdout(), Progress() as progress:
        run = open_session(options)
        before = None if old is None else _read(old, run)
        if log is not None and not os.path.exists(run.machine.cwd / log):
            raise UsageError(f"--log {log}: no such file; expected the log of the DEBUG run")
        if run_them:
            _climb(run, progress)
        found = examine(Request(run), progress.show)
        others, now = (None, None) if nodes is None else _examined_nodes(nodes, run, progress)
        progress.show("checking the steps")
        done = steps(
            Look(
                run,
                found.facts,
                found.report,
                others,
                now,
                before,
                log,
                () if nodes is None else nodes.arguments,
            )
        )
    these = Checklist(done, found.report, "" if before is None else _snapshot_title(before))
    return show(ChecklistAnswer(these), form, file)


def _read(old: Path, run: Session) -> Snapshot:
    return snapshot.read(Path(os.path.normpath(run.machine.cwd / old)), run.registry.collectors)


def _examined_nodes(nodes: RequestedNodes, run: Session, progress: Progress) -> tuple[Report, Snapshot]:
    """The results of all nodes, queried once and judged together with this machine."""
    from verl_doctor.toolkit.snapshot.examination import KeptNodes  # noqa: PLC0415 - a checklist of one machine does without

    seen = snapshot.look(run, nodes, progress.show)
    report = examine(Request(run, KeptNodes(seen.nodes)), progress.show).report
    arguments = [*nodes.arguments, *report.target["arguments"]]
    return replace(report, target={**report.target, "arguments": arguments}), seen


def _climb(run: Session, progress: Progress) -> None:
    from verl_doctor.toolkit.commands.checklist.trials import QUICK  # noqa: PLC0415 - only when requested
    from verl_doctor.toolkit.commands.smoke.smoke import SmokeRequest, climb  # noqa: PLC0415

    climb(replace(run, begun=[]).at_cost("slow"), SmokeRequest(numbers=QUICK), progress)


def _snapshot_title(before: Snapshot) -> str:
    """The snapshot in words: of which machine, and when it was taken."""
    where = f" of {before.machine}" if before.machine else ""
    when = f" ({before.taken})" if before.taken else ""
    return f"{before.path}{where}{when}"

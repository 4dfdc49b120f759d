"""The command `fix`: what was found is repaired, or the repairs are shown."""

from __future__ import annotations

from pathlib import Path

import click

from verl_doctor.toolkit.cluster.node_request import AskedNodes
from verl_doctor.toolkit.console.progress import Progress
from verl_doctor.toolkit.console.streams import nothing_on_stdout
from verl_doctor.toolkit.engine.examination import Request, examine
from verl_doctor.toolkit.options.examination import announced_session, show_report
from verl_doctor.toolkit.options.options import (
    PATH,
    Rules,
    View,
    job_options,
    node_options,
    rule_options,
    target_options,
    view_options,
)
from verl_doctor.toolkit.target import Options, UsageError


@click.command(
    epilog="Exit codes with --apply: 0 all that was attempted is repaired, 1 something still fails."
)
@target_options
@job_options
@node_options
@rule_options
@view_options
@click.option("--apply", "apply_them", is_flag=True, help="Apply the safe repairs, then check again.")
@click.option(
    "--unsafe",
    is_flag=True,
    help="With --apply: also install packages, and apply repairs that cannot be undone or that change the job.",
)
@click.option(
    "--in-place",
    is_flag=True,
    help="Install packages into the environment itself. Without it they go into a copy beside it.",
)
@click.option(
    "--through-links",
    is_flag=True,
    help="Change what links out of the environment lead to, and so every environment that shares it. "
    "Without it such a link becomes a private copy.",
)
@click.option(
    "--output-env",
    type=PATH,
    metavar="DIR",
    help="The folder for the variables that repairs need: a file to source and one for Ray. "
    "Without --apply they are shown.",
)
def fix(
    *,
    options: Options,
    nodes: AskedNodes | None,
    rules: Rules,
    view: View,
    apply_them: bool,
    unsafe: bool,
    in_place: bool,
    through_links: bool,
    output_env: Path | None,
) -> int:
    """Show the repairs as a diff; --apply carries them out.

    Variables go into files in DIR that the next job is started with, and are judged as if it was.
    """
    from verl_doctor.toolkit.repair import job_environment, repair  # noqa: PLC0415 - loaded when the command is called

    if unsafe and not apply_them:
        raise UsageError(
            "--unsafe means something only with --apply; without it everything is shown and nothing done"
        )
    if nodes is not None and output_env is not None:
        raise UsageError("--output-env writes the files of a job, on this machine: leave the nodes out")
    if nodes is not None and through_links:
        raise UsageError("--through-links is for this machine: leave the nodes out")
    if nodes is not None and in_place:
        raise UsageError("--in-place is for this machine: leave the nodes out")
    left: tuple[object, ...] = ()
    with nothing_on_stdout(), Progress() as progress:
        run = announced_session(options, rules, view)
        job = job_environment.asked_for(run.machine, output_env)
        # The first node of a cluster is this machine: it is examined, and the others when all repairs are done.
        found = examine(Request(run if job is None else run.started_anew(job.as_found)), progress.say)
        report, collection = found.report, found.facts
        if nodes is not None:
            from verl_doctor.toolkit.cluster import repair as cluster_repair  # noqa: PLC0415 - few repairs are of many nodes

            if apply_them:
                report, left = cluster_repair.carry_out(
                    nodes, run, collection, report, unsafe=unsafe, watch=progress.say
                )
            else:
                cluster_repair.show(nodes, run, collection, progress.say)
                report = repair.show(run, collection, report, through_links=through_links, in_place=True)
        elif apply_them:
            report = repair.carry_out(
                run,
                collection,
                report,
                unsafe=unsafe,
                job=job,
                through_links=through_links,
                in_place=in_place,
            )
        else:
            report = repair.show(run, collection, report, job, through_links=through_links, in_place=in_place)
    code = max(repair.exit_code(report), int(bool(left))) if apply_them else report.exit_code()
    return show_report(report, run, view, code)

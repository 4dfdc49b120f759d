"""The command `fix`: show the repairs, or carry them out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from verl_doctor.toolkit.cluster.node_request import RequestedNodes
from verl_doctor.toolkit.collectors.packages.installer_limit import APPLY, LONGEST, PLAN, InstallerLimit
from verl_doctor.toolkit.console.progress import Progress
from verl_doctor.toolkit.console.streams import nothing_on_stdout
from verl_doctor.toolkit.engine.examination import Request, examine
from verl_doctor.toolkit.options.examination import announced_session, show_report
from verl_doctor.toolkit.options.node_options import repair_options
from verl_doctor.toolkit.options.rule_options import Rules, rule_options
from verl_doctor.toolkit.options.target_options import job_options, target_options
from verl_doctor.toolkit.options.value_types import PATH
from verl_doctor.toolkit.options.view_options import View, view_options
from verl_doctor.toolkit.target import Options, UsageError


@click.command(
    epilog=(
        "Exit codes: those of check; with --apply: 0 every attempted repair succeeded, 1 something still "
        "fails."
    )
)
@target_options
@job_options
@repair_options
@rule_options
@view_options
@click.option("--apply", "apply_them", is_flag=True, help="Apply the safe repairs, then check again.")
@click.option(
    "--unsafe",
    is_flag=True,
    help=(
        "With --apply: also install packages, and apply repairs that cannot be undone or that change the job."
    ),
)
@click.option(
    "--in-place",
    is_flag=True,
    help="Install packages into the environment itself instead of a copy beside it.",
)
@click.option(
    "--through-links",
    is_flag=True,
    help=(
        "Change the files behind links that leave the environment, and so every environment that shares "
        "them. By default such a link becomes a private copy."
    ),
)
@click.option(
    "--output-env",
    type=PATH,
    metavar="DIR",
    help=(
        "Write the variables that repairs need to DIR: a file to source and one for Ray. Without --apply "
        "they are only shown."
    ),
)
def fix(
    *,
    options: Options,
    nodes: RequestedNodes | None,
    rules: Rules,
    view: View,
    apply_them: bool,
    unsafe: bool,
    in_place: bool,
    through_links: bool,
    output_env: Path | None,
    budget: float | None,
) -> int:
    """Show the repairs as a diff; --apply carries them out.

    With --output-env, variables go into files in DIR; source them before the next job.
    """
    from verl_doctor.toolkit.commands.fix.early import show_before_packages  # noqa: PLC0415 - loaded when the command is called
    from verl_doctor.toolkit.repair import job_environment, repair  # noqa: PLC0415 - see above

    if unsafe and not apply_them:
        raise UsageError("--unsafe needs --apply; without --apply, every repair is shown and none is made")
    if nodes is not None and output_env is not None:
        raise UsageError("--output-env works on this machine only: remove the options that name nodes")
    if nodes is not None and through_links:
        raise UsageError("--through-links works on this machine only: remove the options that name nodes")
    if nodes is not None and in_place:
        raise UsageError("--in-place works on this machine only: remove the options that name nodes")
    left: tuple[object, ...] = ()
    with nothing_on_stdout(), Progress() as progress:
        run = announced_session(options, rules, view)
        seconds = min(budget or (APPLY if apply_them else PLAN), LONGEST)
        run = replace(run, installer_limit=InstallerLimit(seconds))
        if apply_them and not unsafe:
            run = replace(run, offline=True)  # no package may be installed
        job = job_environment.begin_from(run.machine, output_env)
        # The first node of a cluster is this machine: it is examined, and the others when all repairs are
        # done.
        found = examine(Request(run if job is None else run.started_anew(job.as_found)), progress.show)
        report, collection = found.report, found.facts
        progress.show("applying repairs" if apply_them else "planning repairs")
        if not apply_them and view.form == "text":
            show_before_packages(run, collection, report, progress)
        if nodes is not None:
            from verl_doctor.toolkit.cluster import repair as cluster_repair  # noqa: PLC0415 - few repairs are of many nodes

            if apply_them:
                report, left = cluster_repair.carry_out(
                    nodes, run, collection, report, unsafe=unsafe, watch=progress.show
                )
            else:
                cluster_repair.show(nodes, run, collection, progress.show)
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

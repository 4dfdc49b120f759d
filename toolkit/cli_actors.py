"""`verl-doctor actors`: who lives on which GPU, and what has become of each worker group."""

from __future__ import annotations

from pathlib import Path

import click

from verl_doctor.toolkit.cli_options import PATH, answer_options, job_options, target_options
from verl_doctor.toolkit.fact_gpus import Gpus
from verl_doctor.toolkit.fact_processes import Processes
from verl_doctor.toolkit.fact_ray_clusters import RayClusters
from verl_doctor.toolkit.fact_raylets import Raylets
from verl_doctor.toolkit.progress import Progress
from verl_doctor.toolkit.ray_asked import clusters_asked
from verl_doctor.toolkit.session import open_session
from verl_doctor.toolkit.streams import nothing_on_stdout
from verl_doctor.toolkit.target import Options
from verl_doctor.toolkit.view import as_view, show

_NOT_TOLD = 3


@click.command(
    epilog="Exit codes: 0 it is shown, 2 wrong usage, 3 Ray could not be looked at. "
    "verl-doctor check judges it."
)
@target_options
@job_options
@click.option("--all", "every", is_flag=True, help="Also what jobs had that have ended, and every node.")
@click.option(
    "--facts", type=PATH, metavar="FILE", help="Show what was saved elsewhere (check --save-facts)."
)
@answer_options
def actors(*, options: Options, every: bool, facts: Path | None, form: str, file: Path | None) -> int:
    """Show who lives on which GPU, and which ranks are alive.

    The GPUs are those of this machine. Ray is read through its control store (GCS), without joining it, on all its nodes.
    """
    from verl_doctor.toolkit import placement_document, render_placement  # noqa: PLC0415 - only this command needs it
    from verl_doctor.toolkit.placement import placement  # noqa: PLC0415

    with nothing_on_stdout(), Progress():
        run = open_session(options, facts_file=facts)
        look = run.look()
        look.start((RayClusters, Gpus, Processes, Raylets))
        found = placement(
            look.get(RayClusters),
            look.get(Gpus),
            look.get(Processes),
            look.get(Raylets),
            asked=clusters_asked(run.target.ray_address, look),
        )
    view = as_view(
        lambda: placement_document.document(found),
        lambda: render_placement.markdown_lines(found, every=every),
        lambda width: render_placement.text_lines(found, width, every=every),
    )
    show(view, form, file)
    return _NOT_TOLD if placement_document.headline(found)[0] == "NOT TOLD" else 0

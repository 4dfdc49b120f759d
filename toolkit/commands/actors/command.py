"""`verl-doctor actors`: which actors run on which GPU, and the state of each worker group."""

from __future__ import annotations

from pathlib import Path

import click

from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.collectors.processes.processes import Processes
from verl_doctor.toolkit.collectors.processes.raylets import Raylets
from verl_doctor.toolkit.collectors.ray.clusters import RayClusters
from verl_doctor.toolkit.console.progress import Progress
from verl_doctor.toolkit.console.streams import nothing_on_stdout
from verl_doctor.toolkit.console.view import show
from verl_doctor.toolkit.engine.named_ray import queried_clusters
from verl_doctor.toolkit.engine.session import open_session
from verl_doctor.toolkit.options.target_options import job_options, target_options
from verl_doctor.toolkit.options.value_types import PATH
from verl_doctor.toolkit.options.view_options import answer_options, show_all_option
from verl_doctor.toolkit.target import Options


@click.command(
    epilog="Exit codes: 0 shown, 2 wrong usage, 3 Ray could not be read. To check Ray, run verl-doctor check."
)
@target_options
@job_options
@show_all_option
@click.option("--facts", type=PATH, metavar="FILE", help="Show facts saved elsewhere (check --save-facts).")
@answer_options
def actors(*, options: Options, verbose: bool, facts: Path | None, form: str, file: Path | None) -> int:
    """Show which actors run on which GPU, and which ranks are alive.

    The GPUs are those of this machine. All nodes of Ray are read through its control store (GCS), without
    joining it.
    """
    from verl_doctor.toolkit.commands.actors.answer import ActorsAnswer  # noqa: PLC0415 - only this command needs them
    from verl_doctor.toolkit.commands.actors.placement import placement  # noqa: PLC0415

    with nothing_on_stdout(), Progress():
        run = open_session(options, facts_file=facts)
        look = run.look()
        look.start((RayClusters, Gpus, Processes, Raylets))
        found = placement(
            look.get(RayClusters),
            look.get(Gpus),
            look.get(Processes),
            look.get(Raylets),
            requested=queried_clusters(run.target.ray_address, look),
        )
    return show(ActorsAnswer(found, every=verbose), form, file)

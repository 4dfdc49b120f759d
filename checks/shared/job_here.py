"""How much a limit matters here: it stops a job that runs here, and is a hint if that is not certain."""

from __future__ import annotations

from verl_doctor.checks.shared.configuration import GPUS, number_of
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.job_here import JobHere
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Severity

HERE = JobHere("a GPU is here")


def hint(here: JobHere) -> Severity | None:
    """The severity of what matters only if the job runs here: a hint unless that is certain, then None."""
    return None if here.certain else "info"


def at_most_warning(here: JobHere) -> Severity | None:
    """The severity of what stops Ray on this machine even without GPUs.

    It is a warning, unless a job certainly runs here; then it is None.
    """
    return None if here.certain else "warning"


def gpus_used(here: JobHere, resources: Resources, configuration: Configuration | Unknown) -> int:
    """The number of this machine's GPUs that the job uses: 0 unless the job certainly runs here.

    A head node with Ray and without GPUs has none of those that the job requests on each node.
    """
    seen = len(resources.gpus or ())
    return min(number_of(configuration, GPUS) or seen, seen) if here.certain else 0

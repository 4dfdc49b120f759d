"""The names of users and machines in the facts, which a public page must not contain."""

from __future__ import annotations

import contextlib
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.system import System
from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.network.network import Network
from verl_doctor.toolkit.commands.report.pseudonyms import Names, users_in
from verl_doctor.toolkit.commands.report.seen import Seen
from verl_doctor.toolkit.engine.collect import Facts
from verl_doctor.toolkit.engine.examination import HERE
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.logs.timeline.phases import LOG_PHASES
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.node_names import expand

_WORD = re.compile(r"[a-z]+")
_USERS = ("USER", "LOGNAME", "SUDO_USER", "SLURM_JOB_USER", "USERNAME")
_HOSTS = ("HOSTNAME", "SLURMD_NODENAME", "SLURM_SUBMIT_HOST", "MASTER_ADDR")
_LISTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_STEP_NODELIST")
_OTHERS = {
    "SLURM_JOB_ACCOUNT": "ACCOUNT",
    "SLURM_CLUSTER_NAME": "CLUSTER",
    "WANDB_ENTITY": "ENTITY",
    "WANDB_USERNAME": "USER",
}


def names_in(seen: Seen, machine: Machine, texts: Iterable[str]) -> Names:
    """Return the names in the facts, on this machine and in the `texts` of the page.

    Package versions look like addresses but are not.
    """
    environ = {**machine.environ, **_variables(seen)}
    packages = seen.facts.get(Packages)
    installed = () if isinstance(packages, Unknown) else packages.distributions
    home = machine.home
    return Names(
        folders=frozenset({home}),
        users=frozenset(
            {environ.get(name, "") for name in _USERS} | {posixpath.basename(home)} | users_in(texts)
        ),
        hosts=frozenset(_hosts(seen, environ)),
        others={environ[name]: word for name, word in _OTHERS.items() if environ.get(name)},
        words=frozenset(
            word
            for distribution in installed
            for word in (distribution.name, distribution.name.replace("-", "_"))
        )
        | LOG_PHASES.keys(),
        versions=frozenset(distribution.version for distribution in installed),
    )


def _words(seen: Seen, installed: Iterable[Distribution]) -> Iterator[str]:
    """Yield words that the page needs even if they are names too: packages, verl's settings, rules' words."""
    configuration = seen.facts.get(Configuration)
    keys = () if isinstance(configuration, Unknown) else configuration.origins
    texts = chain(
        (distribution.name for distribution in installed),
        keys,
        (result.title for result in seen.report.results),
        LOG_PHASES,
    )
    for text in texts:
        lower = text.lower()
        yield from (lower, lower.replace("-", "_"), *_WORD.findall(lower))


def _variables(seen: Seen) -> Mapping[str, str]:
    found = seen.facts.get(Variables)
    return {} if isinstance(found, Unknown) else found.values


def _hosts(seen: Seen, environ: Mapping[str, str]) -> Iterator[str]:
    sides: list[Facts] = [seen.facts]
    if seen.compared is not None:
        yield seen.compared.old.machine
        sides.append(seen.compared.old)
    for side in sides:
        network, system = side.get(Network), side.get(System)
        if isinstance(network, Network):
            yield network.host.name
        if isinstance(system, System):
            yield system.node
    yield from (environ.get(name, "") for name in _HOSTS)
    if seen.facts_of != HERE:
        yield seen.facts_of
    yield from (index.host for index in seen.indexes or () if not index.is_public)
    folded = [environ.get(name, "") for name in _LISTS]
    folded += [finding.node or "" for _, finding in seen.report.findings()]
    if seen.report.nodes is not None:
        folded += [group.nodes for group in (*seen.report.nodes.kinds, *seen.report.nodes.missing)]
    for nodes in folded:
        with contextlib.suppress(ValueError):
            yield from expand(nodes)

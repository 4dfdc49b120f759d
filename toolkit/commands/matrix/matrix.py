"""Which releases work together: one verl tree against many of vLLM, or one vLLM against many of verl.

Each pair is judged from both sources by the rules of `check`; verl's pins, the installed packages and the
machine are also judged. Nothing is installed or changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter, interpreter
from verl_doctor.toolkit.collectors.installed.packages import (
    VLLM_NAMES,
    Packages,
    packages,
    read_distribution,
)
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees, VllmTree, verl_trees, vllm_tree
from verl_doctor.toolkit.commands.matrix.fit import (
    Here,
    Objection,
    built_for_cuda,
    clashes,
    environment_objections,
    here,
    pin_objections,
)
from verl_doctor.toolkit.commands.matrix.judge import (
    Pending,
    Question,
    Verdict,
    identity_of,
    judges,
    leave_interrupts_alone,
)
from verl_doctor.toolkit.commands.matrix.releases import Release, releases
from verl_doctor.toolkit.commands.matrix.requirements import (
    EXTRA,
    ReleaseRequirements,
    requirements_of,
    requirements_of_tree,
)
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.config import Config
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.index.listing import Listing, NoListing, PackageIndex
from verl_doctor.toolkit.index.wheel_members import WheelError
from verl_doctor.toolkit.index.wheel_sources import WheelSources
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import CannotJudgeError, Target, UsageError

Subject = Literal["verl", "vllm"]

"""The prefix of the origin of a tree that was read from a wheel rather than a folder of the user."""

_READERS = 3  # wheels fetched in parallel


@dataclass(frozen=True)
class Side:
    """One of the two trees of a pair, and what is known about the release that it is.

    `identity` is a digest of its content, `obstacle` why an installer would refuse its wheel here, `cuda` the
    first number of the CUDA release that it was built for.
    """

    project: str
    version: str
    tree: Tree
    requirements: ReleaseRequirements
    identity: str
    obstacle: str = ""
    cuda: str = ""


@dataclass(frozen=True)
class Row:
    """One release: how far each path gets, and the objections to it.

    `pins` are verl's pins that do not admit the pair, `environment` the conflicts with the target,
    `exchanged` what would merely be replaced along with it. `clashes` are packages that both require in
    incompatible versions, `unclear` those for which this is unknown. `unread` is why the release could not be
    judged at all.
    """

    project: str
    version: str
    verdict: Verdict | None = None
    pins: tuple[Objection, ...] = ()
    environment: tuple[Objection, ...] = ()
    exchanged: tuple[Objection, ...] = ()
    clashes: tuple[Objection, ...] = ()
    unclear: tuple[str, ...] = ()
    pinned: bool = True
    installed: bool = False
    unread: str = ""

    @property
    def starts(self) -> bool:
        """Whether every path of the verl in question starts."""
        return self.verdict is not None and self.verdict.starts

    @property
    def fits(self) -> bool:
        """Whether it starts, without any objection."""
        return self.starts and not (self.pins or self.environment or self.clashes)


@dataclass(frozen=True)
class Table:
    """The result: `rows` are releases of `subject`, each against `other`.

    `offered` counts all releases on the index.
    """

    subject: Subject
    other: Side
    python: str
    rows: tuple[Row, ...]
    offered: int
    taken: float = 0.0
    silent: tuple[str, ...] = ()

    @property
    def best(self) -> Row | None:
        """The newest release that fits, else the closest; None if none starts."""
        fitting = [row for row in self.rows if row.fits]
        if fitting:
            return fitting[-1]
        nearest = max(self.rows, key=_nearness, default=None)
        return nearest if nearest is not None and _starting(nearest) else None


def _starting(row: Row) -> int:
    return sum(path.state == "starts" for path in row.verdict.paths) if row.verdict else 0


def _nearness(row: Row) -> tuple[bool, int, bool, bool, bool, int, int, Version]:
    objections = len(row.environment)
    return (
        row.starts,
        _starting(row),
        not row.clashes,
        not row.pins,
        not objections,
        -objections,
        -len(row.verdict.stopping) if row.verdict else 0,
        Version(row.version),
    )


@dataclass
class Study:
    """What all questions of a run share: the target, the index, and the sources of wheels."""

    target: Target
    config: Config
    index: PackageIndex
    sources: WheelSources
    machine: Machine
    projects: tuple[str, ...] = ("vllm",)
    show: Callable[[str], None] = lambda _: None
    _facts: Collection = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Start examining the target."""
        self._facts = Collection(
            (interpreter, packages, verl_trees, vllm_tree), {Machine: self.machine, Target: self.target}
        )
        self._facts.start((Interpreter, Packages))

    @property
    def interpreter(self) -> Interpreter | None:
        """The target's Python, None if it does not respond."""
        answer = self._facts.get(Interpreter)
        return None if isinstance(answer, Unknown) else answer

    @property
    def packages(self) -> Packages | None:
        """What is installed in the target."""
        answer = self._facts.get(Packages)
        return None if isinstance(answer, Unknown) else answer

    @property
    def here(self) -> Here:
        """The constraints of the target on a release."""
        return here(self.interpreter, self.packages)

    def verl_here(self) -> Side:
        """Return the verl of the target.

        Raises UsageError if there is none, CannotJudgeError if that is unknown.
        """
        found = self._facts.get(VerlTrees)
        if isinstance(found, Unknown):
            _demand_seen(found)
            raise UsageError(f"{found.reason}; name one with --verl DIR, or a release with --verl 0.6.1")
        return self._side_here("verl", found.imported)

    def vllm_here(self) -> Side:
        """Return the vLLM of the target.

        Raises UsageError if there is none, CannotJudgeError if that is unknown.
        """
        found = self._facts.get(VllmTree)
        if isinstance(found, Unknown):
            _demand_seen(found)
            raise UsageError(f"{found.reason}; name one with --vllm DIR, or a release with --vllm 0.12.0")
        return self._side_here(found.distribution or "vllm", found.tree)

    def installed(self, project: str) -> str:
        """Return the installed version of a project, empty when it is not installed."""
        distribution = self.packages.get(project) if self.packages is not None else None
        return distribution.version if distribution is not None else ""

    def offered(self, project: str) -> tuple[list[Release], Listing]:
        """Return all releases of a project that the index has wheels of. Raises NoListing."""
        listing = self.index.listing(project)
        return releases(project, listing.wheels, self.interpreter), listing

    def side(self, release: Release) -> Side:
        """Return the sources of a release. Raises WheelError."""
        self.show(f"reading {release.project} {release.version}")
        unpacked = self.sources.of(release.wheel)
        package = "verl" if release.project == "verl" else "vllm"
        folder = unpacked.folder / package
        if not os.path.isfile(folder / "__init__.py"):
            raise WheelError(f"{release.wheel.filename} contains no package {package}")
        metadata = sorted(unpacked.folder.glob("*.dist-info"))
        distribution = read_distribution(str(metadata[0])) if metadata else None
        extras = [EXTRA] if package == "verl" else []
        return Side(
            project=release.project,
            version=str(release.version),
            tree=Tree(
                str(folder),
                package,
                str(release.version),
                f"read from {release.wheel.filename}",
                place="wheel",
            ),
            requirements=requirements_of(distribution, self._markers(), extras)
            if distribution is not None
            else ReleaseRequirements(),
            identity=unpacked.digest,
            obstacle=release.obstacle,
            cuda=built_for_cuda(folder) if package == "vllm" else "",
        )

    def rows(self, subject: Subject, other: Side, chosen: Sequence[Release]) -> Iterator[Row]:
        """Judge the chosen releases, in the order given. The other side is the same in all pairs."""
        readers = ThreadPoolExecutor(_READERS, initializer=leave_interrupts_alone)
        with readers, judges(len(chosen)) as pool:

            def read(release: Release) -> tuple[Side, Pending]:
                side = self.side(release)
                self.show(f"judging {release.project} {release.version}")
                return side, pool.start(self._question(subject, side, other))

            begun = [(release, readers.submit(read, release)) for release in chosen]
            try:
                for number, (release, reading) in enumerate(begun, 1):
                    yield self._row(subject, release, other, reading)
                    self.show(f"{number} of {len(begun)} judged")
            finally:
                for _, reading in begun:
                    reading.cancel()

    def verdict(self, verl: Side, vllm: Side) -> Verdict:
        """Judge one pair."""
        with judges(1) as pool:
            return pool.start(self._question("vllm", vllm, verl)).verdict()

    def row(self, subject: Subject, side: Side, other: Side, verdict: Verdict) -> Row:
        """Return the complete result for one pair."""
        verl, vllm = (side, other) if subject == "verl" else (other, side)
        clashing, unclear = clashes(
            verl.requirements,
            vllm.requirements,
            (f"verl {verl.version}", f"vLLM {vllm.version}"),
            self._released,
        )
        firm, exchanged = environment_objections(
            side.requirements, verl.requirements, self.here, obstacle=side.obstacle, cuda=side.cuda
        )
        return Row(
            project=side.project,
            version=side.version,
            verdict=verdict,
            pins=pin_objections(verl.requirements, "vllm", _public(vllm.version)),
            environment=firm,
            exchanged=exchanged,
            clashes=tuple(clash for clash in clashing if clash.about != "vllm"),
            unclear=unclear,
            pinned=bool(verl.requirements.of("vllm")),
            installed=side.version == self.installed(side.project),
        )

    def _row(
        self,
        subject: Subject,
        release: Release,
        other: Side,
        reading: Future[tuple[Side, Pending]],
    ) -> Row:
        try:
            side, pending = reading.result()
        except WheelError as error:
            return Row(release.project, str(release.version), unread=str(error))
        return self.row(subject, side, other, pending.verdict())

    def _question(self, subject: Subject, side: Side, other: Side) -> Question:
        verl, vllm = (side, other) if subject == "verl" else (other, side)
        return Question(
            self.target,
            self._facts.get(Interpreter),
            self.config,
            verl.tree,
            vllm.tree,
            f"{verl.identity} {vllm.identity}",
        )

    def _side_here(self, project: str, tree: Tree) -> Side:
        installed = self.packages.get(project) if self.packages is not None else None
        if project == "verl":
            requirements = requirements_of_tree(tree, self._markers(), installed)
        else:
            beside = Path(tree.folder).parent
            names = [name.replace("-", "_") for name in VLLM_NAMES]
            metadata = [path for name in names for path in beside.glob(f"{name}-*.dist-info")]
            distribution = read_distribution(str(metadata[0])) if metadata else installed
            requirements = (
                requirements_of(distribution, self._markers())
                if distribution is not None
                else ReleaseRequirements()
            )
        return Side(project, tree.version, tree, requirements, identity_of(tree.folder))

    def _markers(self) -> dict[str, str]:
        return dict(self.packages.markers or {}) if self.packages is not None else {}

    def _released(self, name: str) -> Iterable[str] | None:
        """Return the versions of a package on the index, None if they are not all known."""
        try:
            listing = self.index.listing(name)
        except NoListing:
            return None
        if not self.index.complete or (listing.silent and not listing.taken):
            return None
        return [str(wheel.version) for wheel in listing.wheels] or None


def vllm_pins(side: Side) -> SpecifierSet | None:
    """Return the versions of vLLM that verl's pins admit, None if it has no pins."""
    texts = [requirement.specifier for requirement in side.requirements.of("vllm") if requirement.specifier]
    try:
        return SpecifierSet(",".join(texts)) if texts else None
    except InvalidSpecifier:
        return None


def _public(version: str) -> str:
    """Return a version without its local part: 0.12.0+cpu counts as 0.12.0 for pins."""
    try:
        return Version(version).public
    except InvalidVersion:
        return re.split(r"[+]", version)[0]


def _demand_seen(missing: Unknown) -> None:
    """Distinguish what is missing, which the user can name, from what could not be examined."""
    if not isinstance(missing, Absent):
        raise CannotJudgeError(missing.reason)

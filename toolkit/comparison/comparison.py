"""Compute the differences between two snapshots: pure, and independent of how they are shown."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from typing import Any, Literal, get_args

from verl_doctor.toolkit.cluster.fleet_subjects import Nearly, Values
from verl_doctor.toolkit.collectors.installed.markers import Markers
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.collectors.variables.variable_readers import VariableReaders
from verl_doctor.toolkit.comparison import meaning, releases
from verl_doctor.toolkit.comparison.job_values import decided_elsewhere, unread_variables
from verl_doctor.toolkit.comparison.machine_values import required
from verl_doctor.toolkit.comparison.sides import HERE, Side, Usual
from verl_doctor.toolkit.comparison.subjects import LEAD, READERS, REQUIRED, Reader
from verl_doctor.toolkit.engine.factsfile import NotHeld
from verl_doctor.toolkit.facts import Absent, Collector, Unknown, needs_of
from verl_doctor.toolkit.patchsets.patchset import AnyPatch
from verl_doctor.toolkit.snapshot.json_changes import changes
from verl_doctor.toolkit.snapshot.snapshot import Snapshot
from verl_doctor.toolkit.system.node_names import fold
from verl_doctor.toolkit.text import counted, in_bytes, listed

Weight = Literal["breaks", "matters", "noise"]

WEIGHTS: tuple[Weight, ...] = get_args(Weight)
_IN_BYTES = frozenset({"memory", "locked memory", "/dev/shm"})  # noqa: S108 - a name to show
_SEVERAL = 3
"""How many different values of one subject are listed separately; more are summarised."""


@dataclass(frozen=True)
class Difference:
    """One difference: the kind and name of the subject, its old and new value, "" where it does not exist.

    `nodes` are those of the new cluster with this value, as ranges, "" on a single machine. `weight`: a rule
    finds an error that it did not find before, or a package that the settings choose is missing ("breaks"),
    it may change what the job does ("matters"), or neither ("noise"). `codes` are the rules that report it,
    `why` is one line on that, and `next` the remedy. `facts` are the names of the facts that show it, `path`
    the file below its tree that it is about, `folded` the names that it stands for.
    """

    kind: str
    subject: str
    old: str
    new: str
    nodes: str = ""
    weight: Weight = "matters"
    why: str = ""
    next: str = ""
    codes: tuple[str, ...] = ()
    facts: tuple[str, ...] = field(default=(), repr=False)
    path: str = field(default="", repr=False)
    folded: tuple[str, ...] = field(default=(), repr=False)

    @property
    def summary(self) -> str:
        """What it stands for, in a sentence; "" if it stands for itself."""
        differ = "differs" if len(self.folded) == 1 else "differ"
        return f"{self.subject} {differ} because verl {self.old} -> {self.new}" if self.folded else ""


def differences(old: Snapshot, new: Snapshot, collectors: Iterable[Collector] = ()) -> list[Difference]:
    """Return all differences, those that matter first, judged by facts alone.

    `collectors` are needed for other nodes' facts.
    """
    return between(Side(old, collectors), Side(new, collectors))


def between(old: Side, new: Side) -> list[Difference]:
    """Return the same for two sides."""
    context = _Context(old, new)
    found = [difference for reader in READERS for difference in _of_reader(reader, context)]
    patches = list(_patches(old.snapshot, new.snapshot))
    patched = tuple(f"/{patch.path}" for patch in patches)
    seen: dict[tuple[str, str], tuple[str, ...]] = {}
    first = []
    for difference in found:
        # The first reader that reports a subject wins, because later readers may have less detail; a file
        # that lost a patch is reported as such.
        by = seen.setdefault((difference.kind, difference.subject), difference.facts)
        if by == difference.facts and not (
            difference.kind == "edited file" and difference.subject.endswith(patched)
        ):
            first.append(difference)
    kept = [_without_advice(difference, old, new) for difference in _with_settings_folded(first, old, new)]
    return in_order([*kept, *patches, *_rest(old.snapshot, new.snapshot, [*found, *patches])])


def _with_settings_folded(found: list[Difference], old: Side, new: Side) -> list[Difference]:
    """Replace the settings that only one release of verl has by a single difference without advice."""
    of_one, versions = (
        releases.settings_of_one(old.snapshot, new.snapshot),
        releases.of_verl(old.snapshot, new.snapshot),
    )
    inside = [entry for entry in found if entry.kind == "configuration" and entry.subject in of_one]
    if versions is None or not inside:
        return found
    folded = replace(
        inside[0],
        subject=counted(len(inside), "setting"),
        old=versions[0],
        new=versions[1],
        weight="matters",
        why="only one of these releases of verl has them",
        next="",
        folded=tuple(entry.subject for entry in inside),
    )
    at = found.index(inside[-1])
    before, after = ([entry for entry in part if entry not in inside] for part in (found[:at], found[at:]))
    return [*before, folded, *after]


def _without_advice(difference: Difference, old: Side, new: Side) -> Difference:
    """Remove the remedy for variables set for workers by verl or launch files: no shell can undo those."""
    if difference.kind != "variable":
        return difference
    if difference.old and _is_set_by_packages(difference.subject, old):
        return replace(difference, next="")
    if not _is_decided_elsewhere(difference.subject, new):
        return difference
    return (
        replace(difference, next="")
        if not difference.old or _is_decided_elsewhere(difference.subject, old)
        else difference
    )


def _is_decided_elsewhere(name: str, side: Side) -> bool:
    return name in decided_elsewhere(side.snapshot.get(Variables), side.snapshot.get(JobVariables))


def _is_set_by_packages(name: str, side: Side) -> bool:
    """Return whether verl or Ray set it for the job's processes: neither the shell nor a launch file did."""
    launch = side.snapshot.get(Launch)
    by_files = () if isinstance(launch, Unknown) else launch.settings
    return _is_decided_elsewhere(name, side) and all(setting.name != name for setting in by_files)


def in_order(found: Iterable[Difference]) -> list[Difference]:
    """Order by weight, what a rule reports first, then the packages of verl's stack; else keep the order."""

    def rank(entry: Difference) -> tuple[int, bool, int]:
        return WEIGHTS.index(entry.weight), entry.weight == "matters" and not entry.codes, _rank(entry)

    return sorted(found, key=rank)


def _rank(difference: Difference) -> int:
    """Return the rank: packages of the stack, then everything that is no package, then other packages."""
    if difference.kind != "package":
        return len(LEAD)
    return LEAD.index(difference.subject) if difference.subject in LEAD else len(LEAD) + 1


def not_compared(old: Snapshot, new: Snapshot) -> list[str]:
    """Return sentences on what one side reports and the other could not."""
    names_by_reason: dict[str, list[str]] = {}
    for fact in old.facts:
        for side, other, name in ((old, new, "old"), (new, old, "new")):
            answer = side.get(fact)
            if not isinstance(answer, Unknown) or isinstance(other.get(fact), Unknown):
                continue
            if isinstance(answer, NotHeld) and not side.nodes:
                names_by_reason.setdefault(f"the {name} side lacks {{}}", []).append(fact.__name__)
            elif not isinstance(answer, (Absent, NotHeld)):
                names_by_reason.setdefault(f"the {name} side does not have {{}}: {answer.reason}", []).append(
                    fact.__name__
                )
    sentences = [sentence.replace("{}", listed(names, 4), 1) for sentence, names in names_by_reason.items()]
    return sentences + list(_not_named(old, new))


def _not_named(old: Snapshot, new: Snapshot) -> Iterator[str]:
    """Yield what was not named on one side."""
    for requirement in dict.fromkeys(reader.requires for reader in READERS if reader.requires):
        facts = [needs_of(reader.read)[0].fact for reader in READERS if reader.requires == requirement]
        for side, other, name in ((old, new, "old"), (new, old, "new")):
            if any(
                isinstance(side.get(fact), Absent) and not isinstance(other.get(fact), Unknown)
                for fact in facts
            ):
                yield f"the {name} side was examined without {REQUIRED[requirement]}"


class _Context:
    """What decides whether a difference matters, besides its values."""

    def __init__(self, old: Side, new: Side) -> None:
        self.old = old
        self.new = new
        sides = (old.snapshot, new.snapshot)
        self._stack = frozenset(LEAD).union(
            *(required(side.facts(name).get(Packages)) for side in (old, new) for name in _some(side))
        )
        self.one_has_a_script = len({isinstance(side.get(Launch), Unknown) for side in sides}) > 1
        self._decided = frozenset.intersection(
            *(decided_elsewhere(side.get(Variables), side.get(JobVariables)) for side in sides)
        )
        self._dead = unread_variables(*(side.get(VariableReaders) for side in sides))

    def matters(self, reader: Reader, kind: str, name: str, old: str, new: str) -> bool:
        if kind == "package":
            return name in self._stack
        if kind == "variable" and (name in self._dead or name in self._decided):
            return False
        return reader.matters(name, old, new)


def _some(side: Side) -> list[str]:
    return [HERE, *list(side.nodes)[:1]]


def _of_reader(reader: Reader, context: _Context) -> Iterator[Difference]:
    """Yield one reader's differences between a new node and the old node that it is compared with."""
    if reader.requires == "script" and context.one_has_a_script:
        return
    now = context.new.values(reader)
    usual = Usual(context.old, context.old.values(reader))
    by_values: dict[tuple[str, str], dict[tuple[str, str], list[str]]] = {}
    seen: dict[tuple[int, int], list[tuple[tuple[str, str], tuple[str, str]]]] = {}
    for node, after in now.items():
        before = usual.for_node(node, context.new.kinds[node])
        if isinstance(before, Unknown) or isinstance(after, Unknown):
            continue
        # Nodes with equal values are compared once.
        both = (id(before), id(after))
        if both not in seen:
            seen[both] = list(_differing(before, after, reader))
        for key, values in seen[both]:
            by_values.setdefault(key, {}).setdefault(values, []).append(node)
    facts = tuple(need.fact.__name__ for need in needs_of(reader.read) if not need.tolerant)
    for (kind, name), nodes_by_values in by_values.items():
        for (old, new), nodes in _few(nodes_by_values).items():
            matters = context.matters(reader, kind, name, old, new)
            yield Difference(
                kind,
                name,
                _shown(name, old),
                _shown(name, new),
                nodes=fold(node for node in nodes if node != HERE),
                weight="matters" if matters else "noise",
                why=reader.why,
                next=reader.step(name, old, new) if matters else "",
                facts=facts,
            )


def _differing(
    before: Values, after: Values, reader: Reader
) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    keys = [key for key in before if key in after] if reader.both else dict.fromkeys([*before, *after])
    for key in keys:
        old, new = before.get(key, ""), after.get(key, "")
        if old != new and not (old and new and _alike(old, new, reader.nearly)):
            yield key, (old, new)


def _alike(old: str, new: str, nearly: Nearly | None) -> bool:
    return nearly is not None and len(set(nearly.together((old, new)).values())) == 1


def _few(by_values: Mapping[tuple[str, str], list[str]]) -> Mapping[tuple[str, str], list[str]]:
    """Return the same, with values that differ on nearly every node summarised."""
    if len(by_values) <= _SEVERAL:
        return by_values
    (old, new), *_ = sorted(by_values, key=lambda values: -len(by_values[values]))
    nodes = [node for nodes in by_values.values() for node in nodes]
    return {(old, f"{new} and {len(by_values) - 1} other values"): nodes}


def _shown(name: str, value: str) -> str:
    return in_bytes(int(value)) if name in _IN_BYTES and value.isdecimal() else value


def _patches(old: Snapshot, new: Snapshot) -> Iterator[Difference]:
    """Yield the patches of the old tree that the new one lacks, and vice versa."""
    if old.patches is None or new.patches is None:
        yield from _markers(old, new)
        return
    here = {patch.identity for patch in new.patches}
    known = {patch.identity for patch in old.patches}
    apply = f"verl-doctor patches apply {shlex.quote(old.path)} --apply" if old.path else ""
    for patch in old.patches:
        if patch.identity not in here:
            yield _patch(patch, "in place", "missing", "what it repaired is broken again", apply)
    for patch in new.patches:
        if patch.identity not in known:
            yield _patch(patch, "", "in place", "the old tree did without it", "")


def _patch(patch: AnyPatch, old: str, new: str, why: str, step: str) -> Difference:
    return Difference(
        "patch",
        f"{patch.marker} at {patch.place}",
        old,
        new,
        why=why,
        next=step,
        facts=("Markers",),
        path=patch.path,
    )


def _markers(old: Snapshot, new: Snapshot) -> Iterator[Difference]:
    """Yield the same for facts files, which contain the marked lines but not what was patched."""
    before, after = old.get(Markers), new.get(Markers)
    if isinstance(before, Unknown) or isinstance(after, Unknown):
        return
    counts = [_by_file(markers) for markers in (before, after)]
    for key in dict.fromkeys([*counts[0], *counts[1]]):
        was, now = counts[0].get(key, 0), counts[1].get(key, 0)
        if was != now:
            why = "what it repaired is broken again" if now < was else "the old tree did without it"
            yield Difference(
                "patch",
                f"{key[1]} in {key[0]}",
                _lines(was),
                _lines(now),
                why=why,
                next=meaning.OTHER_PATCHES if now < was else "",
                facts=("Markers",),
                path=key[0],
            )


def _lines(number: int) -> str:
    return counted(number, "marked line") if number else ""


def _by_file(markers: Markers) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for line in markers.lines:
        key = (line.path.removeprefix(markers.folder).lstrip("/"), line.marker)
        found[key] = found.get(key, 0) + 1
    return found


def _rest(old: Snapshot, new: Snapshot, differences: Iterable[Difference]) -> Iterator[Difference]:
    """Yield differences in facts that no reader reads: mostly what is free, busy or running right now."""
    known = {name for difference in differences for name in difference.facts}
    for fact in new.facts:
        before, after = old.get(fact), new.get(fact)
        if fact.__name__ in known or isinstance(before, Unknown) != isinstance(after, Unknown):
            continue
        if before == after or isinstance(before, Unknown) or not is_dataclass(before):
            continue
        found = changes(_plain(before), _plain(after))
        places = [*found.put, *found.without]
        if places:
            yield Difference(
                "fact",
                fact.__name__,
                "",
                f"{places[0]}" + (f" and {len(places) - 1} more places" if len(places) > 1 else ""),
                weight="noise",
                facts=(fact.__name__,),
            )


def _plain(fact: Any) -> Any:
    return json.loads(json.dumps(asdict(fact)))

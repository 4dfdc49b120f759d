"""A step of the checklist: the environment is as it was on the old cluster, where it matters."""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterator, Sequence
from pathlib import Path

from verl_doctor.toolkit.checklist import NAMED, WITHOUT, Said
from verl_doctor.toolkit.checklist_trials import steps_logged
from verl_doctor.toolkit.collect import Collection
from verl_doctor.toolkit.compare import Difference
from verl_doctor.toolkit.compare_judge import Comparison
from verl_doctor.toolkit.session import Session
from verl_doctor.toolkit.text import counted

_OF_OTHER_STEPS = frozenset({"patch", "file"})


def environment_said(
    found: Comparison | None, run: Session, facts: Collection, log: Path | None, judged: Container[str]
) -> list[Said]:
    """What differs from the old cluster. What may matter is settled by a run in which a step was logged in spite of it.

    What rules say that other steps are `judged` by is not said again.
    """
    if found is None:
        return [Said("unknown", ("what was otherwise only the old cluster can tell",), WITHOUT)]
    breaks, matters = (
        [one for one in found.of(weight) if not _is_told_elsewhere(one, judged)]
        for weight in ("breaks", "matters")
    )
    noise, nodes = len(found.of("noise")), len(found.new.nodes)
    rest = [f"{counted(noise, 'difference')} without consequence"] if noise else []
    rest += [f"{counted(nodes, 'node')} compared"] if nodes else []
    do = f"verl-doctor compare {shlex.quote(found.old.path)}"
    if breaks:
        return [Said("failed", (*_differing(breaks), *_differing(matters), *rest), breaks[0].next or do)]
    lost = tuple(f"not compared: {sentence}" for sentence in found.lost)
    if lost:
        return [Said("unknown", (*lost, *_differing(matters), *rest), do)]
    if not matters:
        return [Said("done", ("nothing that matters is otherwise", *rest))]
    sentences = (*_differing(matters), *rest)
    if logged := steps_logged(run, facts, log):
        return [
            Said(
                "done",
                (f"{logged}, with {counted(len(matters), 'difference')} that might matter", *sentences),
            )
        ]
    settled = "a DEBUG run that logs a step shows that they do no harm"
    return [Said("open", (*sentences, settled), matters[0].next or do)]


def _is_told_elsewhere(one: Difference, judged: Container[str]) -> bool:
    """Whether another step is about it: the patches, the paths, the tree."""
    return one.kind in _OF_OTHER_STEPS or (bool(one.codes) and all(code in judged for code in one.codes))


def _differing(found: Sequence[Difference]) -> Iterator[str]:
    for one in found[:NAMED]:
        name = one.subject if one.kind in ("", one.subject) else f"{one.kind} {one.subject}"
        nodes = f" on {one.nodes}" if one.nodes else ""
        why = f" ({', '.join(one.codes)}: {one.why})" if one.codes else ""
        yield f"{name}: {one.old or 'none'} -> {one.new or 'none'}{nodes}{why}"
    if len(found) > NAMED:
        yield f"and {counted(len(found) - NAMED, 'more difference')}"

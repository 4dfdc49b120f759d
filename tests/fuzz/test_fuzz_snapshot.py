"""Damaged snapshots: each is read as far as it can be, compared and shown, or refused in a sentence."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from fuzz.mutate import mutants
from support.fleets import node, numbered
from support.machine_facts import known, machine
from support.schemas import validate
from support.trying import ROUNDS, SEED

from verl_doctor.toolkit.commands.compare.render import markdown_lines, text_lines
from verl_doctor.toolkit.commands.explain.schemas import schema_text
from verl_doctor.toolkit.comparison.document import document
from verl_doctor.toolkit.comparison.judge import compared
from verl_doctor.toolkit.engine.config import Config
from verl_doctor.toolkit.engine.judge import Selection
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.patchsets.patchset import Patch
from verl_doctor.toolkit.snapshot import snapshot
from verl_doctor.toolkit.snapshot.nodes import FoldedNodes
from verl_doctor.toolkit.snapshot.snapshot import Snapshot
from verl_doctor.toolkit.target import Target, UsageError

pytestmark = pytest.mark.slow

COLLECTORS = known().collectors
NASTY = (
    None,
    True,
    -1,
    10**400,
    1e308,
    "",
    "\x1b[31m\u202e",
    "9" * 400,
    [],
    {},
    [[]],
    {"is": {}},
    "node[1-9]",
    "a/b",
)


def sample() -> Snapshot:
    nodes = FoldedNodes()
    for name in numbered(3):
        nodes.add(node(name, machine="laptop"))
    patch = Patch("a.py", "f", ("abc",), (), "old()", "new()", "Uky", 7)
    return Snapshot(machine("laptop"), "0.1.0", "2026-11-22T01:00:00Z", "node1", nodes, (patch,))


def refusal(path: Path) -> str:
    """Why a file is refused, "" when it is read."""
    try:
        snapshot.read(path, COLLECTORS)
    except UsageError as refused:
        return str(refused)
    return ""


def shown(path: Path, against: Snapshot, run: Session) -> None:
    """Read, compare with the original and render in all formats, or be refused in one sentence."""
    if said := refusal(path):
        assert "\n" not in said
        return
    read = snapshot.read(path, COLLECTORS)
    for found in (compared(against, read, run), compared(read, against, run)):
        validate(json.loads(json.dumps(document(found))), schema_text("compare"))
        assert all(line.plain.isprintable() for line in text_lines(found, 80, every=True))
        assert list(markdown_lines(found, every=True))


def changed(value: Any, chance: random.Random) -> Any:
    """The document with one value somewhere in it replaced by another, or by something nasty."""
    place, steps = value, []
    while isinstance(place, (dict, list)) and place and (not steps or chance.random() < 0.9):
        key = chance.choice(list(place)) if isinstance(place, dict) else chance.randrange(len(place))
        steps.append((place, key))
        place = place[key]
    holder, key = steps[-1]
    if chance.random() < 0.2:
        del holder[key]
    else:
        holder[key] = chance.choice(NASTY)
    return value


@pytest.fixture(scope="module")
def run() -> Session:
    target = Target(Path(sys.executable), chosen_by="--python")
    return Session(Machine(), target, Config(), known(), Selection())


@pytest.mark.parametrize("doctor", ["0.1.0", "0.0.9"])
def test_values_of_other_types(doctor: str, run: Session, tmp_path: Path) -> None:
    text = snapshot.dump(sample(), COLLECTORS)
    chance = random.Random(20261122 + SEED)
    for _ in range(25 * ROUNDS):
        whole = {**json.loads(text), "verl_doctor": doctor}
        for _ in range(chance.choice((1, 1, 4))):
            whole = changed(whole, chance)
        path = tmp_path / "damaged.json"
        path.write_text(json.dumps(whole))
        shown(path, sample(), run)


def test_damaged_bytes(run: Session, tmp_path: Path) -> None:
    text = snapshot.dump(sample(), COLLECTORS).encode()
    for number, mutant in mutants([text], 120, seed=22):
        path = tmp_path / f"{number}.json"
        path.write_bytes(mutant)
        shown(path, sample(), run)
        path.unlink()

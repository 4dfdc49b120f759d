"""Randomised clean-ups with the living and the dead mixed: nothing is lost, and nothing is left."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from support import clean_trials
from support.clean_trials import Totals, keepers, trial
from support.left_behind import two_minutes_later
from support.trying import cases

from verl_doctor.toolkit.commands.clean import path
from verl_doctor.toolkit.leftover import Kept

SEED = 20261121


def run(folder: Path, number: int) -> tuple[list[str], Totals]:
    totals: Totals = Counter()
    faults = []
    with keepers(8) as team, two_minutes_later():
        for trial_number in range(number):
            root = folder / str(trial_number)
            root.mkdir()
            faults += trial(root, random.Random(f"{SEED}-{trial_number}"), team, totals)
    return faults, totals


@pytest.mark.slow
def test_trials_lose_nothing_and_leave_nothing_over(tmp_path):
    faults, totals = run(tmp_path, cases(50))
    assert faults == []
    assert totals["removed"] == totals["dead"] > 0
    assert totals["living"] > 0
    assert totals["comers in time"] > 0


@pytest.mark.slow
def test_trials_detect_a_cleanup_without_proofs(tmp_path, monkeypatch):
    """The trials can fail: without its proofs the clean-up removes living things."""
    monkeypatch.setattr(path, "_demand_unused", lambda *_: None)
    monkeypatch.setattr(path, "_demand_proof", lambda *_: None)
    found = clean_trials.leftovers

    def all_of_it(machine):
        seen = found(machine)
        return type(seen)(tuple(_taken(leftover, machine) for leftover in (*seen.found, *seen.kept)))

    monkeypatch.setattr(clean_trials, "leftovers", all_of_it)
    faults, _ = run(tmp_path, 5)
    assert any(fault.startswith("lost") for fault in faults)


def _taken(one, machine):
    if not isinstance(one, Kept):
        return one
    about = machine.at(one.name).lstat()
    removal = path.RemovePath(one.name, about.st_dev, about.st_ino, about.st_ctime_ns)
    return path.Leftover(one.kind, one.name, (), removal)

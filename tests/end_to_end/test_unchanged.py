"""`check` with its record of the last run gives the same result as without one, whatever changes in between."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.running import Doctor
from support.schemas import validate
from support.trying import SEED

from verl_doctor.toolkit.collectors.leftovers import files
from verl_doctor.toolkit.collectors.processes import processes
from verl_doctor.toolkit.commands.demo.demo import build
from verl_doctor.toolkit.commands.explain.schemas import schema_text
from verl_doctor.toolkit.engine import registry
from verl_doctor.toolkit.system import cache
from verl_doctor.toolkit.system.looks import states

_SCRIPT = """\
export VLLM_USE_V1=1
source ./settings.sh
python3 -m verl.trainer.main_ppo data.train_batch_size=64 trainer.n_gpus_per_node=$GPUS
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A miniature environment and a launch script.

    A change counts at once; no Ray of other tests runs here, and none of their jobs left files.
    """
    monkeypatch.setattr(processes, "numbers", lambda *_: [])
    monkeypatch.setattr(files, "places", lambda *_, **__: [])
    monkeypatch.setattr(states, "_TICKS", dict.fromkeys(states._TICKS, -60.0))
    build(tmp_path / "env")
    (tmp_path / "run.sh").write_text(_SCRIPT)
    (tmp_path / "settings.sh").write_text("GPUS=8\n")
    return tmp_path


@pytest.fixture
def checked(here: Doctor, place: Path) -> Callable[..., tuple[dict[str, Any], int]]:
    """Report of a check without values that differ between runs, and the number of rules with a cached result."""

    def check(*arguments: str, **environ: str) -> tuple[dict[str, Any], int]:
        words = ("check", "--json", "--python", "env/bin/python", "run.sh", *arguments)
        done = here(*words, cwd=place, **environ)
        assert done.stdout, done.stderr[-500:]
        report = json.loads(done.stdout)
        validate(report, schema_text("report"))
        unchanged = report.pop("unchanged", {"rules": 0})
        report.pop("seconds")
        for result in report["results"]:
            result.pop("seconds")
        return report, unchanged["rules"]

    return check


def records() -> list[Path]:
    return sorted((cache.top() / "unchanged").glob("*.json"), key=lambda file: file.stat().st_mtime_ns)


def forget() -> None:
    for file in records():
        file.unlink()


def looked_at(place: Path) -> Iterator[tuple[str, Path]]:
    """Each path below the place that the last run looked at: its kind, and where it lies."""
    for folder, followed, _, links, _, listed in json.loads(records()[-1].read_text())["looks"]["rows"]:
        if f"{folder}/".startswith(f"{place}/"):
            yield from (("file", Path(folder, name)) for name in followed.split("/") if name)
            yield from (("link", Path(folder, name)) for name in links.split("/") if name)
            if listed is not None:
                yield "listing", Path(folder)


def changed(kind: str, path: Path) -> Callable[[], object] | None:
    """Change an observed path and return a function that restores it; None if it cannot exist: a file is in place of its folder."""
    if kind == "listing" and path.is_dir():
        new = path / "appeared.py"
        new.write_text("import verl\n")
        return new.unlink
    if not os.path.lexists(path):
        missing = [parent for parent in path.parents if not parent.exists()]
        if any(parent.is_file() for parent in path.parents):
            return None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")
        return partial(shutil.rmtree, missing[-1]) if missing else path.unlink
    if path.is_file() and not path.is_symlink():
        old, about = path.read_bytes(), path.stat()
        path.write_bytes(b"#" * len(old))  # of the same size, and its time is put back
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
        return lambda: path.write_bytes(old)
    aside = path.with_name(f"{path.name}-aside")
    path.rename(aside)
    return lambda: aside.rename(path)


@pytest.mark.slow
def test_second_result_equals_the_first(checked: Callable[..., tuple[dict[str, Any], int]]) -> None:
    first, reused = checked()
    assert reused == 0
    if not records():  # what is computed in children is kept from the second run on
        checked()
    second, reused = checked()
    assert reused > 15
    assert second == first


@pytest.mark.slow
def test_last_line_states_the_age(
    checked: Callable[..., tuple[dict[str, Any], int]], here: Doctor, place: Path
) -> None:
    while not records():
        checked()
    last = here("check", "--python", "env/bin/python", "run.sh", cwd=place).stdout.splitlines()[-1]
    assert re.search(r"\d+ results reused from \d+ seconds? ago: nothing they depend on has changed", last)


@pytest.mark.slow(seconds=60)
def test_changes_of_every_observed_path_are_noticed(
    checked: Callable[..., tuple[dict[str, Any], int]], place: Path
) -> None:
    while not records():
        checked()
    env = place / "env"  # where it, or its interpreter, has another name there is no target
    paths = sorted(
        (kind, path)
        for kind, path in set(looked_at(place))
        if path != env and not path.is_relative_to(env / "bin")
    )
    assert len(paths) > 50
    rows = json.loads(records()[-1].read_text())["looks"]["rows"]
    for kind, path in paths:  # each of them, by the record alone
        before = {
            "rows": [states.row_of(row[0], row[1], row[3], row[5] is not None) for row in rows],
            "access": [],
        }
        time.sleep(0.01)
        if put_back := changed(kind, path):
            assert states.what_changed(before), (kind, path)
            put_back()
    for kind, path in random.Random(SEED).sample(paths, 6):  # and some with whole runs
        checked()
        time.sleep(0.02)
        put_back = changed(kind, path)
        with_record, _ = checked()
        forget()
        assert with_record == checked()[0], (kind, path)
        if put_back:
            put_back()
        time.sleep(0.02)


@pytest.mark.slow
def test_other_options_give_a_separate_result(checked: Callable[..., tuple[dict[str, Any], int]]) -> None:
    while not records():
        checked()
    for arguments, environ in [
        ((), {"VLLM_USE_V1": "0"}),
        ((), {"RAY_ADDRESS": "auto"}),
        (("trainer.nnodes=2",), {}),
    ]:
        with_record, _ = checked(*arguments, **environ)
        forget()
        assert with_record == checked(*arguments, **environ)[0]


def test_inputs_of_cached_facts_are_cheap_and_stable() -> None:
    """These are observed in every run and compared: they must be cheap, and the same from run to run where nothing happens."""
    collectors = {collector.name: collector for collector in registry.load().collectors}
    kept = {name for name, collector in collectors.items() if collector.kept}
    needs = {need.reference.name for name in kept for need in collectors[name].needs}
    assert needs & (collectors.keys() - kept) == {"GpuKinds", "Interpreter", "Raylets"}
    assert {"Listings"} <= kept  # a handle with a cache: every user of it must count like the first
    users = {
        name
        for name, collector in collectors.items()
        if any(n.reference.name == "Listings" for n in collector.needs)
    }
    assert users <= kept

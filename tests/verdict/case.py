"""The cases of the scoreboard: launch scripts as changes of a few bases, and what really happened when each was run."""

from __future__ import annotations

import fcntl
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from verl_doctor.toolkit.rule import Phase

HERE = Path(__file__).parent
REAL = HERE / "real.jsonl"
FIRST = HERE / "first.jsonl"
SINCE = HERE / "since.jsonl"

Cause = Literal["", "script", "files", "packages", "configuration", "hardware", "other"]
"""What a failure comes from, "" for a case that is meant to be healthy. It is written down before the first prediction."""

Outcome = Literal["trained", "died", "hung", "undecided"]


@dataclass(frozen=True)
class Base:
    """What cases change: the program, its settings, and where it runs. `releases` are installed versions by name.

    `device` is "h200", "h200-x2" or "cpu". `group` keeps older releases apart from the one that most cases use. `sources` are wheels
    with whose files cases are judged where they cannot be installed.
    """

    name: str
    program: str
    words: tuple[str, ...]
    device: str
    releases: Mapping[str, str]
    group: str = "0.9.1"
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, str]:
        """The settings by key, with Hydra's plus signs."""
        return dict(word.split("=", 1) for word in self.words)


@dataclass(frozen=True)
class Case:
    """One launch script, as changes of a base.

    `set` and `drop` change settings, `env` is exported. `edit` replaces parts of the finished script. `files` are written
    into the job's folder. `data` maps tables there to Python statements about their `rows`, `model` maps files of the model's
    folder to statements about their JSON document `j`, to "=" and a text, or to "" for one that is removed.
    `kind`, `rows` and `shape` choose the tiny data and model. `before` are runs of the same script with these words added.
    `seen` has to be in the log of its last run when it trains. `blind`: its author had not seen the rules. Those that are `late` run last.
    """

    name: str
    base: Base
    cause: Cause
    why: str
    set: Mapping[str, str] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    edit: tuple[tuple[str, str], ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)
    model: Mapping[str, str] = field(default_factory=dict)
    kind: str = "text"
    rows: int = 2
    shape: str = ""
    before: tuple[tuple[str, ...], ...] = ()
    seen: tuple[str, ...] = ("step:1 ",)
    blind: bool = False
    late: int = 0


@dataclass(frozen=True)
class Real:
    """What really happened. `raised` is the type of the first exception, `text` its words, or those of the shell.

    `turned` is the exception that it was turned into. `phase` is where a job that died or hung had got to.
    """

    case: str
    outcome: Outcome
    seconds: int
    phase: Phase | None = None
    raised: str = ""
    text: str = ""
    turned: str = ""
    exit: int | None = None


@dataclass(frozen=True)
class First:
    """What the doctor reported before anything was changed for the case: the codes and phases of its errors."""

    case: str
    commit: str
    verdict: str
    codes: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()


def bases() -> Mapping[str, Base]:
    """All bases by name. One may stand on another with `on`, whose settings it changes."""
    found: dict[str, Base] = {}
    for name, table in _toml(HERE / "bases.toml").items():
        parent = found.get(table.pop("on", ""))
        settings = dict(parent.settings) if parent else {}
        for key in table.pop("drop", ()):
            del settings[key]
        settings |= dict(word.split("=", 1) for word in table.pop("words", "").split())
        inherited = (
            {"program": parent.program, "device": parent.device, "releases": parent.releases}
            if parent
            else {}
        )
        words = tuple(f"{key}={value}" for key, value in settings.items())
        found[name] = Base(name=name, words=words, **{**inherited, **table})
    return found


def cases() -> Mapping[str, Case]:
    """All cases by name, in the order in which they stand."""
    known, found = bases(), dict[str, Case]()
    for file in sorted((HERE / "cases").glob("*.toml")):
        document = _toml(file)
        common = document.pop("common")
        for name, table in document.items():
            fields = {**common, **table}
            base = known[fields.pop("base")]
            for key in fields.keys() & {"drop", "seen"}:
                fields[key] = tuple(fields[key])
            for key in fields.keys() & {"edit", "before"}:
                fields[key] = tuple(map(tuple, fields[key]))
            assert name not in found, name
            found[name] = Case(name=name, base=base, **fields)
    return found


def real() -> Mapping[str, Real]:
    """What really happened in the cases that were run."""
    return {row["case"]: Real(**row) for row in _lines(REAL)}


def first() -> Mapping[str, First]:
    """What was reported first."""
    rows = (
        {**row, "codes": tuple(row.get("codes", ())), "phases": tuple(row.get("phases", ()))}
        for row in _lines(FIRST)
    )
    return {row["case"]: First(**row) for row in rows}


def since() -> Mapping[str, tuple[str, ...]]:
    """The rules that foretold a failure when `predict.py --since` was last run, by case. Where tests look first: it decides nothing."""
    return {row["case"]: tuple(row["codes"]) for row in _lines(SINCE)}


def record(file: Path, row: Any) -> None:
    """Write a row into a table, in place of an earlier one of the same case."""
    fields = {key: value for key, value in vars(row).items() if value not in ("", None, ())}
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rows = {line["case"]: line for line in _lines(file)} | {row.case: {"case": row.case, **fields}}
        lines = (json.dumps(row, ensure_ascii=False, default=list) for row in rows.values())
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _lines(file: Path) -> list[dict[str, Any]]:
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def _toml(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text(encoding="utf-8"))

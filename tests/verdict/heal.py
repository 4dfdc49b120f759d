"""What `fix --apply`, and then `fix --apply --unsafe`, make of cases that `check` says will fail. Fixes of launch scripts alone are tried.

    python tests/verdict/heal.py [--construct] [--run] CASE...

With `--construct` the healed scripts are judged by construction too, with `--run` those of a machine without a GPU are run.
`heal.toml` says of each case whether a repair of its script can heal it; it was written down before the first attempt.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from verdict import case as cases_of
from verdict import log
from verdict.case import HERE, Case, tomllib
from verdict.forecast import built_together
from verdict.predict import Predictor, Prepared, leave_checkpoint
from verdict.run import Runner

from verl_doctor.toolkit.collectors.construction.construction import Construction
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.repair import repair
from verl_doctor.toolkit.result import Report

CLASSES = HERE / "heal.toml"
_OURS = "verl_doctor.patches.launch."
NOT_JUDGED = "not judged"
_TOGETHER = 16  # cases that are constructed together
_LIKE_OURS = "interface-name"  # of the variables, and it edits the line that sets one


@dataclass(frozen=True)
class Classes:
    """The known repair of each case that a script's repair can heal, and why each of the others cannot be healed so."""

    healable: Mapping[str, str]
    not_healable: Mapping[str, str]


def classes() -> Classes:
    """What was written down before the first attempt."""
    return Classes(**tomllib.loads(CLASSES.read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Healed:
    """What became of a case. `by` is "safe", "unsafe" or "" for one that still fails; `left` are its errors with what is printed for them.

    `worse` are rules that find errors now and passed before; `offered` says that a fix was planned.
    """

    case: str
    by: str
    repairs: tuple[str, ...]
    left: tuple[str, ...] = ()
    worse: tuple[str, ...] = ()
    offered: bool = False
    script: str = ""
    built: str = ""
    """What construction found in the healed script: "passes", the codes of the rules that fail, or why it could not be built.

    "not judged" where the sound job that the case changes fails in the same way: what it needs is not in this environment.
    """
    ran: str = ""
    """What happened when the healed script was run, "" when it was not."""


@dataclass(frozen=True)
class _Steady(Session):
    """A session of which every look has what was read once for all cases of one kind of target."""

    always: Mapping[type, Any] = field(default_factory=dict)

    def look(self, known: Mapping[type, Any] | None = None) -> Collection:
        """Facts about the script are collected anew."""
        return super().look({**self.always, **(known or {})})


class Healer:
    """Heals cases below a folder."""

    def __init__(self, folder: Path) -> None:
        self.predictor = Predictor(folder)

    def heal(self, case: Case) -> Healed | None:
        """Build the case, repair it, and judge it again; None for a case that is not said to fail."""
        if not self.predictor.foretell(case).fails:
            return None
        script = self.predictor.builder.build(case)
        leave_checkpoint(case, script.parent)
        with tempfile.TemporaryDirectory(prefix="v-", dir=self.predictor.builder.folder) as private:
            session = self._session(case, script, Path(private))
            before = session.check(session.look())
            safe = _repaired(session, unsafe=False)
            if safe.verdict != "failures":
                return _outcome(case, "safe", before, safe, script.read_text("utf-8"))
            every = _repaired(session, unsafe=True)
            repairs = (
                *(repair for repair in safe.repairs or () if repair.outcome == "repaired"),
                *(every.repairs or ()),
            )
        return _outcome(case, "unsafe", before, replace(every, repairs=repairs), script.read_text("utf-8"))

    def constructed(self, rows: Sequence[Healed]) -> list[Healed]:
        """The same rows, with what construction makes of the healed scripts. All of them share what is imported."""
        known = cases_of.cases()
        found = self._built([known[row.case] for row in rows if row.by], healed=True)
        sound = {_sound(known[name]) for name, built in found.items() if built.errors}
        controls = self._built([known[name] for name in sorted(filter(None, sound))], healed=False)
        return [replace(row, built=_against_control(row.case, found, controls)) for row in rows]

    def _built(self, cases: Sequence[Case], *, healed: bool) -> dict[str, _Built]:
        """What construction makes of the scripts of these cases: as they were healed, or as they are."""
        scripts = self.predictor.builder.folder
        with contextlib.ExitStack() as stack:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="v-", dir=scripts)))
            prepared = {}
            for case in cases:
                private = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="v-", dir=scripts)))
                script = scripts / case.name / "run.sh" if healed else self.predictor.builder.build(case)
                session = self.predictor.session(case, script, private)
                shared = self.predictor.shared[case.base.device, case.base.group]
                prepared[case.name] = Prepared(case, session, session.look(shared))
            built = built_together(self.predictor, prepared, place)
            return {
                name: _constructed(one, built.get(name) or one.look.get(Construction))
                for name, one in prepared.items()
            }

    def run(self, row: Healed) -> Healed:
        """The same row, with what happened when the healed script was run."""
        case = cases_of.cases()[row.case]
        if not row.by or case.base.device != "cpu":
            return row
        folder = self.predictor.builder.folder / "run"
        folder.mkdir(exist_ok=True)
        runner = Runner(folder)
        job = self.predictor.builder.folder / case.name
        code, text = runner.start(case, job / "run.sh", ())
        own = [file.read_text("utf-8", "replace") for file in sorted(job.rglob("*.log"))]  # a script's own
        ended = log.judged(case, code, log.plain("\n".join((text, *own))))
        return replace(row, ran=" ".join(filter(None, (ended.outcome, ended.raised, ended.text[:200]))))

    def _session(self, case: Case, script: Path, private: Path) -> Session:
        plain = self.predictor.session(case, script, private)
        ours = tuple(
            fix
            for fix in plain.registry.fixes
            if fix.id == _LIKE_OURS or fix.plan.__module__.startswith(_OURS)
        )
        facts = self.predictor.shared[case.base.device, case.base.group]
        return _Steady(**{**vars(plain), "registry": replace(plain.registry, fixes=ours)}, always=facts)


@dataclass(frozen=True)
class _Built:
    """The codes of the rules that fail by construction with what they report, or why nothing could be built."""

    errors: tuple[tuple[str, str], ...] = ()
    unbuilt: str = ""


def _constructed(one: Prepared, built: Construction | Unknown) -> _Built:
    if isinstance(built, Unknown):
        return _Built(unbuilt=built.reason)
    judged = one.with_construction(built)
    found = judged.session.check(judged.look).findings()
    return _Built(
        tuple((result.code, finding.message) for result, finding in found if finding.severity == "error")
    )


def _sound(case: Case) -> str:
    """The name of the case in which the same base is as it is, "" for a base without one."""
    changes = ("set", "drop", "env", "edit", "files", "data", "model")
    return next(
        (
            other.name
            for other in cases_of.cases().values()
            if other.base == case.base
            and not other.cause
            and not any(getattr(other, name) for name in changes)
        ),
        "",
    )


def _against_control(name: str, found: Mapping[str, _Built], controls: Mapping[str, _Built]) -> str:
    built = found.get(name, _Built(unbuilt=""))
    if name not in found or built.unbuilt:
        return built.unbuilt
    control = controls.get(_sound(cases_of.cases()[name]), _Built())
    if built.errors and set(built.errors) <= set(control.errors):
        return f"{NOT_JUDGED}: the sound job fails in the same way ({built.errors[0][1][:120]})"
    return " ".join(dict.fromkeys(code for code, _ in built.errors)) or "passes"


def _repaired(session: Session, *, unsafe: bool) -> Report:
    look = session.look()
    return repair.carry_out(session, look, session.check(look), unsafe=unsafe)


def _outcome(case: Case, by: str, before: Report, after: Report, script: str) -> Healed:
    passed = {result.code for result in before.results if result.status in {"pass", "warn"}}
    errors = [(result.code, finding) for result, finding in after.findings() if finding.severity == "error"]
    return Healed(
        case.name,
        by if after.verdict != "failures" else "",
        tuple(f"{repair.fix} for {repair.code}: {repair.outcome}" for repair in after.repairs or ()),
        tuple(f"{code} {finding.message} => {finding.remedy}" for code, finding in errors),
        tuple(code for code, _ in errors if code in passed),
        bool(after.repairs),
        script,
    )


def recorded(files: Iterable[Path]) -> list[Healed]:
    """What `--record` wrote."""
    rows = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    lists = ("repairs", "left", "worse")
    return [Healed(**{**row, **{name: tuple(row[name]) for name in lists}}) for row in rows]


def healed(names: Iterable[str], *, construct: bool = False, run: bool = False) -> Iterable[Healed]:
    """What became of these cases, of those that are said to fail."""
    known, waiting = cases_of.cases(), list(names)
    with tempfile.TemporaryDirectory(prefix="v") as folder, _journal(Path(folder, "state")):
        healer = Healer(Path(folder))
        for start in range(0, len(waiting), _TOGETHER):
            rows = [row for name in waiting[start : start + _TOGETHER] if (row := healer.heal(known[name]))]
            rows = healer.constructed(rows) if construct else rows
            yield from (healer.run(row) for row in rows) if run else rows


@contextlib.contextmanager
def _journal(folder: Path) -> Iterator[None]:
    """A journal of its own for changes outside of environments: no other doctor of this user is waited for."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(folder)
    try:
        yield
    finally:
        del os.environ["XDG_STATE_HOME"]
        if before is not None:
            os.environ["XDG_STATE_HOME"] = before


def main() -> None:
    parser = argparse.ArgumentParser(description="what fix makes of cases that will fail")
    parser.add_argument("names", nargs="*", metavar="CASE", help="all that are classed without any")
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="write what became of each as a line of JSON; cases that are in it are left out",
    )
    parser.add_argument("--construct", action="store_true", help="judge healed scripts by construction too")
    parser.add_argument("--run", action="store_true", help="run healed scripts of a machine without a GPU")
    parser.add_argument("--script", action="store_true", help="show the script afterwards")
    options = parser.parse_args()
    known = classes()
    done = {row.case for row in recorded(filter(Path.exists, filter(None, [options.record])))}
    names = [name for name in options.names or [*known.healable, *known.not_healable] if name not in done]
    for outcome in healed(names, construct=options.construct, run=options.run):
        kind = "healable" if outcome.case not in known.not_healable else "not healable"
        print(
            f"{outcome.case} ({kind}): {outcome.by or 'NOT HEALED'}{' WORSE ' if outcome.worse else ''}",
            flush=True,
        )
        for line in filter(
            None, (*outcome.repairs, *outcome.left, *outcome.worse, outcome.built, outcome.ran)
        ):
            print(f"    {line}", flush=True)
        if options.record:
            with options.record.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")
        if options.script:
            print(outcome.script)


if __name__ == "__main__":
    main()

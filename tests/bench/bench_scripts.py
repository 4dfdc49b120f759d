"""verl's own launch scripts, all of a release: `check --each` beside `check`, and the reading of a script beside bash and Hydra.

    python tests/bench/bench_scripts.py CHECKOUT... [--python PYTHON] [--hydra PYTHON]

CHECKOUT is a folder with a release of verl and its examples; --hydra an interpreter that has Hydra. Each script is judged alone and
together with all others. A finding counts when it stands in the script, or when it is an error that `check` without a script does
not have: the others are about the machine. bash runs each script with programs that only write down their arguments, and Hydra
composes what bash has handed over. Exit code 1 for any difference.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.processes.raylets import Raylets
from verl_doctor.toolkit.engine import check_each
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.session import Session, open_session
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.target import Options, UsageError

Key = tuple[str, str, object, str]
ORACLE = Path(__file__).parent.parent / "support/real_hydra/oracle.py"
PROGRAMS = ("python", "python3", "torchrun", "ray", "accelerate", "deepspeed")
"""What starts a job, each replaced by a program that writes down its arguments."""

_USEFUL = (
    "basename",
    "cat",
    "cut",
    "date",
    "dirname",
    "expr",
    "head",
    "printf",
    "realpath",
    "sed",
    "seq",
    "tr",
    "uname",
    "wc",
)
_LIMIT = 10  # seconds for a script
_PATIENCE = 30  # times as long as a fact may take otherwise
_UNTRIED = {"not told"}
_TAKEN = {"applied", "chosen"}


@dataclass
class Compared:
    """What was counted for a release, what differs, and why rules could not check."""

    counts: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def same(self, what: str, *, agree: bool, words: str) -> None:
        """Count one comparison."""
        self.counts[what] += 1
        if not agree:
            self.counts[f"{what}, differs"] += 1
            self.differences.append(f"{what}: {words}")


def main() -> int:
    parser = argparse.ArgumentParser(description="verl's own launch scripts")
    parser.add_argument("checkouts", type=Path, nargs="+")
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--hydra", type=Path)
    options = parser.parse_args()
    differ = 0
    for checkout in [path.absolute() for path in options.checkouts]:
        os.chdir(checkout)
        found = compared(options.python.absolute(), options.hydra.absolute() if options.hydra else None)
        print(
            f"{checkout.name}: "
            + ", ".join(f"{what} {count}" for what, count in sorted(found.counts.items())),
            flush=True,
        )
        for words, count in Counter(found.differences).most_common(60):
            print(f"  {count} x {words}")
        for words in found.broken:
            print(f"  {words}")
        differ += len(found.differences)
    return 1 if differ else 0


def compared(python: Path, hydra: Path | None) -> Compared:
    """Compare all scripts below the current folder."""
    found = Compared()
    alone: dict[str, Counter[Key]] = {}
    files, asked, answers = [], [], []
    usual = _keys(_alone(python, "")[1])
    for script in sorted(str(path) for path in Path().rglob("*.sh")):
        found.counts["scripts"] += 1
        try:
            facts, report = _alone(python, script)
        except UsageError:
            continue
        files.append(script)
        broken = [result for result in report.results if result.status == "error"]
        found.counts["rules that could not check"] += len(broken)
        found.broken += [f"{script}: {result.code} could not check: {result.reason}" for result in broken]
        path = str(Path(script).absolute())
        keys = (
            key
            for key, finding in _findings(report)
            if _stands_in(path, finding) or (finding.severity == "error" and key not in usual)
        )
        alone[path] = Counter(keys)
        found.counts["CFG109 errors"] += sum(key[:2] == ("CFG109", "error") for key in alone[path])
        launch, configuration = facts.get(Launch), facts.get(Configuration)
        if not isinstance(launch, Launch) or launch.command is None or launch.command.conditional:
            continue
        words = [word.text for word in launch.command.words]
        unsure = None in words or any(word.conditional for word in launch.command.words)
        real = by_bash(script, launch.command.module)
        if real is None or unsure:
            found.counts["not compared with bash"] += 1
            continue
        found.same(
            "command lines",
            agree=real == words,
            words=f"{script}: {sorted(set(real) ^ set(filter(None, words)))[:4]}",
        )
        if (
            hydra is not None
            and isinstance(configuration, Configuration)
            and not configuration.missing_folder
        ):
            fates = {override.fate for override in configuration.overrides}
            if fates & _UNTRIED:
                continue
            overrides = [word for word in real if not word.startswith("-")]
            asked.append({"folder": configuration.folder, "name": configuration.name, "overrides": overrides})
            answers.append((script, configuration, bool(configuration.refused) or not fates <= _TAKEN))
    _each(found, python, files, alone)
    if hydra is not None:
        for (script, configuration, refuses), answer in zip(answers, _by_hydra(hydra, asked), strict=True):
            words = (
                f"{script}: {answer.get('refused', 'composed')}; we {'refuse' if refuses else 'compose'} it"
            )
            found.same("compositions", agree=refuses == ("refused" in answer), words=words)
            if "is" in answer and not refuses:
                ours, theirs = (
                    json.dumps(
                        {key: part for key, part in tree.items() if key != "hydra"},
                        sort_keys=True,
                        default=str,
                    )
                    for tree in (configuration.after, answer["is"])
                )
                found.same("composed trees", agree=ours == theirs, words=script)
    return found


def _each(found: Compared, python: Path, files: list[str], alone: dict[str, Counter[Key]]) -> None:
    together: dict[str, Counter[Key]] = {path: Counter() for path in alone}
    report = check_each.judged(_session(python, ""), Options(python, verl=Path()), files, lambda _: None)
    for key, finding in _findings(report):
        assert finding.location is not None
        together[finding.location.path][key] += 1
    for path, keys in alone.items():
        found.counts["findings"] += sum(keys.values())
        found.counts["errors"] += sum(count for key, count in keys.items() if key[1] == "error")
        for kind, rest in (("lost", keys - together[path]), ("added", together[path] - keys)):
            for key, count in rest.items():
                found.counts[f"{kind} by --each"] += count
                found.differences += [f"{kind} by --each: {key[0]} {key[1]}: {key[3]}"] * count


def by_bash(script: str, module: str) -> list[str] | None:
    """The words behind the program that bash hands over; None where it does not come to that."""
    with tempfile.TemporaryDirectory() as home:
        programs, heard = Path(home, "bin"), Path(home, "heard")
        programs.mkdir()
        for name in PROGRAMS:
            path = programs / name
            path.write_text(
                f"#!/bin/bash\nprintf '%s\\0' \"$@\" >> {heard}\nprintf '\\0\\0' >> {heard}\n", "utf-8"
            )
            path.chmod(0o755)
        for name in _USEFUL:
            if place := shutil.which(name):
                (programs / name).symlink_to(place)
        copy = Path(home, "work")
        shutil.copytree(Path(script).parent, copy / Path(script).parent, symlinks=True)
        environ = {**os.environ, "PATH": str(programs)}
        try:
            subprocess.run(["/bin/bash", script], cwd=copy, env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIMIT, check=False)  # fmt: skip
        except subprocess.TimeoutExpired:
            return None
        text = heard.read_text("utf-8", "replace") if heard.exists() else ""
        calls = text.replace(str(copy), str(Path().absolute())).split("\0\0\0")
    for call in calls:
        words = call.split("\0")
        if module in words:
            return words[words.index(module) + 1 :]
    return None


def _by_hydra(python: Path, requests: list[dict[str, object]]) -> list[dict[str, object]]:
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    with tempfile.TemporaryDirectory() as home:
        package = _importable(Path("verl/trainer/config"), Path(home))
        environ = {**os.environ, "PYTHONPATH": str(package)}
        done = subprocess.run(
            [str(python), str(ORACLE)], input=lines, capture_output=True, text=True, check=True, env=environ
        )
    return [json.loads(line) for line in done.stdout.splitlines()]


def _importable(folder: Path, home: Path) -> Path:
    """A folder from which the package with verl's configuration can be imported, for `pkg://verl.trainer.config`, without verl's own imports."""
    for package in (folder, *folder.parents):
        (home / package).mkdir(parents=True, exist_ok=True)
        if package != Path():
            (home / package / "__init__.py").touch()
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.suffix != ".py" and path.name != "__pycache__":
            (home / folder / path.name).symlink_to(path.absolute())
    return home


def _session(python: Path, script: str) -> Session:
    session = open_session(Options(python, verl=Path(), launch=(script,) if script else ()))
    # What changes by itself would be a difference: a fact that comes too late on a busy machine, and another user's Ray.
    collectors = (
        replace(
            collector,
            timeout=collector.timeout * _PATIENCE,
            collect=_no_raylets if collector.fact is Raylets else collector.collect,
        )
        for collector in session.registry.collectors
    )
    return replace(session, registry=replace(session.registry, collectors=tuple(collectors)))


def _no_raylets(**_: object) -> Absent:
    return Absent("this bench does not look for them")


def _alone(python: Path, script: str) -> tuple[Collection, Report]:
    session = _session(python, script)
    facts = session.look()
    return facts, session.check(facts)


def _findings(report: Report) -> Iterator[tuple[Key, Finding]]:
    for result, finding in report.findings():
        yield (result.code, finding.severity or "error", finding.subject, finding.message), finding


def _keys(report: Report) -> set[Key]:
    return {key for key, _ in _findings(report)}


def _stands_in(path: str, finding: Finding) -> bool:
    return any(place is not None and place.path == path for place in (finding.location, *finding.also))


if __name__ == "__main__":
    sys.exit(main())

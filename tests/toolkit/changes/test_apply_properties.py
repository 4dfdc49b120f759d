"""For any tree and any plans, apply makes exactly the planned changes, and undo is its inverse."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from crash.harness import HOME, Tree, tree
from hypothesis import given, settings
from hypothesis import strategies as st
from support.trying import cases

from verl_doctor.toolkit.change import Change, NewFile, NewLink, ReplaceFile
from verl_doctor.toolkit.changes.apply import apply, history, undo

names = st.sampled_from(["a", "b.py", "c d", "__init__.py", "\u00e9", "-x", "a.b.py"])
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
contents = st.binary(max_size=40) | st.sampled_from([b"", b"\r\n", b"\xff\n", b"x" * 70_000])
modes = st.sampled_from([0o644, 0o600, 0o755, 0o444, 0o640])


def build(
    root: Path, files: dict[str, tuple[bytes, int]], links: dict[str, int], twins: dict[str, int]
) -> None:
    """Create the files that do not conflict, then symbolic and hard links to some of them."""
    made = []
    for name, (content, mode) in files.items():
        path = root / name
        if not path.exists() and all(not parent.is_file() for parent in path.parents):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(mode)
            made.append(path)
    for wanted, link in ((links, Path.symlink_to), (twins, Path.hardlink_to)):
        for name, number in wanted.items():
            path = root / name
            if made and not os.path.lexists(path) and path.parent.is_dir():
                link(path, made[number % len(made)])


def plan(root: Path, wanted: list[tuple[str, bytes]]) -> list[Change]:
    """Replace existing files and create missing ones, as links if the content is None; each file once, and none in place of a folder."""
    changes: dict[str, Change] = {}
    for name, content in wanted:
        path = root / name
        real = os.path.realpath(path)
        if any(real.startswith(f"{other}/") or other.startswith(f"{real}/") for other in changes):
            continue
        if path.is_file():
            changes.setdefault(real, ReplaceFile(path, path.read_bytes(), content))
        elif not path.exists() and not any(parent.is_file() for parent in path.parents):
            made = NewFile(path, content, 0o640) if content else NewLink(path, root)
            changes.setdefault(real, made)
    return list(changes.values())


def expected(root: Path, before: Tree, changes: list[Change]) -> dict[str, bytes]:
    files = {name: what[1] for name, what in before.items() if what[0] == "file"}
    for change in changes:
        if isinstance(change, NewLink):
            assert change.path.readlink() == change.target
            continue
        assert isinstance(change, (ReplaceFile, NewFile))
        name = os.path.relpath(os.path.realpath(change.path), os.path.realpath(root))
        files[name] = change.after if isinstance(change, ReplaceFile) else change.content
    return files


def bytes_of(now: Tree) -> dict[str, bytes]:
    return {name: what[1] for name, what in now.items() if what[0] == "file"}


trees = st.tuples(
    st.dictionaries(paths, st.tuples(contents, modes), max_size=6),
    st.dictionaries(paths, st.integers(0, 5), max_size=2),
    st.dictionaries(paths, st.integers(0, 5), max_size=2),
)
plans = st.lists(st.lists(st.tuples(paths, contents), min_size=1, max_size=4), min_size=1, max_size=3)


@pytest.mark.slow
@settings(max_examples=cases(30), deadline=None)
@given(trees, plans)
def test_undo_is_the_inverse_of_apply(
    made: tuple[dict, dict, dict], wanted: list[list[tuple[str, bytes]]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        build(root, *made)
        seen = [tree(root)]
        for wishes in wanted:
            changes = plan(root, wishes)
            done = apply(changes, root / HOME, fix="f", code="C")
            assert bytes_of(tree(root)) == expected(root, seen[-1], changes)
            if done is not None:
                assert apply(changes, root / HOME, fix="f", code="C") is None
                seen.append(tree(root))
        while len(seen) > 1:
            seen.pop()
            undo(root / HOME)
            assert tree(root) == seen[-1]
        assert {change.now for entry in history(root / HOME) for change in entry.changes} <= {"restored"}

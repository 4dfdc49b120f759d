"""A tree that was copied badly, in the ways in which people do."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.installed.markers import Markers, markers
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.collectors.packages.tree_manifest import (
    TreeManifest,
    entry_of,
    top_of,
    tree_manifest,
)
from verl_doctor.toolkit.commands.checklist.tree_compare import HARMLESS, alone, compare
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.marker import Marker

FILES = {
    "pyproject.toml": '[project]\nname = "verl"\n',
    ".gitignore": "*.log\n/data/\n",
    "run.sh": "#!/bin/bash\npython -m verl.trainer.main_ppo\n",
    "verl/__init__.py": "",
    "verl/protocol.py": "x = 1\n" * 50,
    "verl/trainer/__init__.py": "",
    "verl/trainer/main_ppo.py": "def main():\n    pass\n",
    "verl/workers/__init__.py": "",
    "verl/workers/actor.py": "class Actor:\n    pass\n",
    "verl/workers/critic.py": "class Critic:\n    pass\n",
    "verl/workers/Rollout.py": "class Rollout:\n    pass\n",
    "docs/index.rst": "verl\n",
}
PATCHED = "def f(a):\n    # return g(a=a)  # Uky\n    return g(b=a)  # Uky\n"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    top = tmp_path / "old" / "verl_x"
    for name, text in FILES.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    (top / "run.sh").chmod(0o755)
    (top / "verl" / "link.py").symlink_to("protocol.py")
    return top


@pytest.fixture
def new(old: Path, tmp_path: Path) -> Path:
    return shutil.copytree(old, tmp_path / "new" / "verl_x", symlinks=True)


def manifest(top: Path) -> TreeManifest:
    trees = VerlTrees(Tree(str(top / "verl"), "verl", "0.6.1", "the current folder", str(top)), "")
    marked = markers.collect(trees, Marker())
    assert isinstance(marked, Markers)
    found = tree_manifest.collect(trees, marked, Marker())
    assert isinstance(found, TreeManifest)
    return found


def bad(old: Path, new: Path) -> list[str]:
    found = compare(manifest(old), manifest(new))
    return [
        f"{difference.fault}: {difference.path}" for difference in found if difference.fault not in HARMLESS
    ]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def linked(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


DAMAGES: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "nothing": (lambda _: None, []),
    "without a trailing slash": (
        lambda top: shutil.copytree(top, top / "verl_x", symlinks=True),
        ["nested: verl_x/"],
    ),
    "the package inside itself": (
        lambda top: shutil.copytree(top / "verl", top / "verl" / "verl", symlinks=True),
        ["nested: verl/verl/"],
    ),
    "the tree inside its own package": (
        lambda top: shutil.copytree(top, top / "verl", symlinks=True, dirs_exist_ok=True, ignore=lambda *_: ["protocol.py"]),
        ["nested: verl/docs/", "nested: verl/verl/"],
    ),
    "a folder is missing": (lambda top: shutil.rmtree(top / "verl/workers"), ["missing: verl/workers/"]),
    "a file is missing": (lambda top: (top / "verl/workers/actor.py").unlink(), ["missing: verl/workers/actor.py"]),
    "cut off": (lambda top: cut(top / "verl/protocol.py"), ["shorter: verl/protocol.py"]),
    "empty": (lambda top: (top / "verl/protocol.py").write_text(""), ["empty: verl/protocol.py"]),
    "other text of the same length": (
        lambda top: (top / "verl/protocol.py").write_text("y = 2\n" * 50),
        ["different: verl/protocol.py"],
    ),
    "rsync was killed": (
        lambda top: (top / "verl/workers/actor.py").rename(top / "verl/workers/.actor.py.Xk3w9Q"),
        ["missing: verl/workers/actor.py", "half copied: verl/workers/.actor.py.Xk3w9Q"],
    ),
    "names without case": (
        lambda top: (top / "verl/workers/Rollout.py").rename(top / "verl/workers/rollout.py"),
        ["other case: verl/workers/Rollout.py"],
    ),
    "links followed": (
        lambda top: ((top / "verl/link.py").unlink(), shutil.copy(top / "verl/protocol.py", top / "verl/link.py")),
        ["link: verl/link.py"],
    ),
    "a link that leads nowhere": (lambda top: linked(top / "verl/link.py", "/gone"), ["link: verl/link.py"]),
    "without modes": (lambda top: (top / "run.sh").chmod(0o644), ["not executable: run.sh"]),
    "a pointer of Git LFS": (
        lambda top: (top / "verl/protocol.py").write_text(
            "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
        ),
        ["pointer: verl/protocol.py"],
    ),
    "over an older tree": (
        lambda top: (top / "verl/workers/gone_since.py").write_text("x = 1\n"),
        ["extra source: verl/workers/gone_since.py"],
    ),
    "what training writes": (
        lambda top: [
            (top / name).parent.mkdir(exist_ok=True) or (top / name).write_text("x")
            for name in ("outputs/a.txt", "run.log", "data/a.parquet", "verl-doctor.toml", "verl/a.pyc", "notes.md")
        ],
        [],
    ),
    "this cluster's own table": (
        lambda top: (top / "pyproject.toml").write_text(
            '[project]\nname = "verl"\n[tool.verl-doctor.sites]\nmodel = "/m"\n'
        ),
        [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", DAMAGES)
def test_each_faulty_copy_method_is_recognised(way: str, old: Path, new: Path) -> None:
    damage, expected = DAMAGES[way]
    damage(new)
    assert bad(old, new) == expected


def test_lost_patch_is_not_copy_damage(old: Path, new: Path) -> None:
    (old / "verl/protocol.py").write_text(PATCHED)
    (new / "verl/protocol.py").write_text("def f(a):\n    return g(a=a)\n")
    assert bad(old, new) == []
    (new / "verl/protocol.py").write_text("def f(a):\n    return h(a=a)\n")
    assert bad(old, new) == ["shorter: verl/protocol.py"]


def test_checkout_next_to_an_incomplete_package(old: Path, new: Path) -> None:
    (new / "verl/workers/actor.py").unlink()
    installed = Tree(str(new / "verl"), "verl", "0.6.1", "site-packages")
    there = tree_manifest.collect(VerlTrees(installed, ""), Unknown("none"), Marker())
    assert isinstance(there, TreeManifest)
    assert [difference.path for difference in compare(manifest(old), there)] == ["workers/actor.py"]


def test_faults_visible_without_the_original(new: Path) -> None:
    assert alone(manifest(new)) == []
    linked(new / "verl/link.py", "/gone")
    (new / "verl/workers/.critic.py.aB3dE6").touch()
    (new / ".env.sample").touch()
    assert [(difference.fault, difference.path) for difference in alone(manifest(new))] == [
        ("half copied", "verl/workers/.critic.py.aB3dE6"),
        ("link", "verl/link.py"),
    ]


def test_entry_survives_a_round_trip(old: Path) -> None:
    (old / "verl" / "a name with  spaces.py").write_text("x = 1\n")
    found = manifest(old)
    assert [entry_of(line).line() for line in found.lines] == list(found.lines)
    assert any(entry.path == "verl/a name with  spaces.py" for entry in found.entries())


def test_tree_ends_at_its_checkout(tmp_path: Path) -> None:
    def top(folder: str, found_in: str = "the current folder", project: str = "") -> str:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        found = top_of(Tree(str(tmp_path / folder), "verl", "0.6.1", found_in, project))
        return str(found.relative_to(tmp_path))

    (tmp_path / ".git").mkdir()  # a home that is kept in git
    assert top("a/verl") == "a/verl"
    (tmp_path / "a" / ".gitignore").touch()
    assert top("a/verl") == "a"
    assert top("a/verl", "site-packages") == "a/verl"
    (tmp_path / "b" / "src").mkdir(parents=True)
    (tmp_path / "b" / ".git").mkdir()
    assert top("b/src/verl") == "b"
    assert top("c/verl", project=str(tmp_path / "c")) == "c"


def test_unusual_file_names_are_compared(old: Path, new: Path) -> None:
    for name in ("two\nlines.py", "\udcff.py", " led by a blank.py", "e\u0301.py"):
        (old / "verl" / name).write_text("x = 1\n")
    assert len(bad(old, new)) == 1  # folded
    shutil.rmtree(new)
    shutil.copytree(old, new, symlinks=True)
    assert bad(old, new) == []
    (new / "verl" / "e\u0301.py").rename(new / "verl" / "\u00e9.py")
    assert bad(old, new) == ["other case: verl/e\u0301.py"]


def test_many_files_of_one_folder_are_reported_together(old: Path, new: Path) -> None:
    for number in range(40):
        for top in (old, new):
            (top / "docs" / f"page{number}.rst").write_text("text\n")
    for number in range(20):
        (new / "docs" / f"page{number}.rst").write_text("")
    (difference,) = compare(manifest(old), manifest(new))
    assert (difference.fault, difference.path, difference.count) == ("empty", "docs/", 20)


@pytest.mark.parametrize(
    "line",
    [
        "junk",
        "file 644 1 a a ../../etc/passwd",
        "file 644 1 a a verl/../..",
        "file 644 1 a a /etc/passwd",
        "file 644 1 a a verl//a.py",
        "file 644 1 a a verl/./a.py",
        "file 644 1 a a " + "/".join("a" * 20_000),
        "gift 644 1 a a verl/a.py",
        "file 999 1 a a verl/a.py",
    ],
    ids=lambda line: line[:30],
)
def test_manifest_with_an_invalid_line_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        TreeManifest("/verl", "verl", (line,))


@pytest.mark.parametrize("path", ["verl/a b.py", ".", "..data/x", "verl/...", "a\nb"])
def test_unusual_file_name_survives_a_round_trip(path: str) -> None:
    assert [entry.path for entry in TreeManifest("/verl", "", (f"file 644 1 a a {path}",)).entries()] == [
        path
    ]


def test_manifest_with_too_many_files_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 200,000 files"):
        TreeManifest("/verl", "verl", ("file 644 1 a a b",) * 200_001)

"""Reading which commit a verl tree is at, as git wrote it down, without git."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.installed.checkout import Checkout, checkout
from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.facts import Absent, Unknown


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "verl-main"
    (folder / "verl").mkdir(parents=True)
    git(tmp_path, "init", "-q", "-b", "main", str(folder))
    git(folder, "commit", "-q", "--allow-empty", "-m", "one")
    return folder


def trees(folder: Path, found_in: str = "the current folder") -> VerlTrees:
    return VerlTrees(Tree(str(folder / "verl"), "verl", "0.6.1", found_in), "")


def seen(folder: Path) -> Checkout | Unknown:
    answer = checkout.collect(trees(folder), Packages(()))
    assert isinstance(answer, (Checkout, Unknown))
    return answer


def test_branch(project: Path) -> None:
    commit = git(project, "rev-parse", "HEAD")
    assert seen(project) == Checkout(commit, "main", str(project / ".git/HEAD"))


def test_detached_commit(project: Path) -> None:
    git(project, "checkout", "-q", "--detach")
    assert seen(project) == Checkout(git(project, "rev-parse", "HEAD"), "", str(project / ".git/HEAD"))


def test_packed_branches_are_read(project: Path) -> None:
    git(project, "pack-refs", "--all")
    found = seen(project)
    assert isinstance(found, Checkout)
    assert found.commit == git(project, "rev-parse", "HEAD")


def test_linked_worktree(project: Path) -> None:
    other = project.parent / "other"
    git(project, "worktree", "add", "-q", str(other), "-b", "mine")
    git(other, "commit", "-q", "--allow-empty", "-m", "two")
    (other / "verl").mkdir()
    found = seen(other)
    assert isinstance(found, Checkout)
    assert (found.commit, found.branch) == (git(other, "rev-parse", "HEAD"), "mine")


@pytest.mark.parametrize(
    "content", ["", "ref: refs/heads/nowhere\n", "ref: ../../../etc/passwd\n", "\xff\x00", "abc"]
)
def test_head_without_a_commit_is_unknown(project: Path, content: str) -> None:
    (project / ".git/HEAD").write_text(content, "latin-1")
    assert seen(project) == Unknown(f"the checkout in {project} does not record its commit")


def test_circular_references_are_unknown(project: Path) -> None:
    (project / ".git/refs/heads/main").write_text("ref: refs/heads/main\n")
    assert isinstance(seen(project), Unknown)


def test_commit_of_a_git_install_is_read(tmp_path: Path) -> None:
    content = {"url": "https://ann:pass@git.example/verl", "vcs_info": {"vcs": "git", "commit_id": "a" * 40}}
    (tmp_path / "direct_url.json").write_text(json.dumps(content))
    installed = Packages((Distribution("verl", "0.6.1", str(tmp_path)),))
    found = checkout.collect(trees(tmp_path, "site-packages"), installed)
    assert found == Checkout("a" * 40, "", f"{tmp_path}/direct_url.json", "https://***@git.example/verl")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"vcs_info": {"commit_id": 3}}', '{"vcs_info": []}'])
def test_install_from_an_index_has_no_commit(tmp_path: Path, content: str) -> None:
    (tmp_path / "direct_url.json").write_text(content)
    installed = Packages((Distribution("verl", "0.6.1", str(tmp_path)),))
    assert isinstance(checkout.collect(trees(tmp_path, "site-packages"), installed), Absent)

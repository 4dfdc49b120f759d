"""Rules of the house that a reader would otherwise have to remember."""

from __future__ import annotations

import ast
import collections
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from verl_doctor.toolkit import public_facts
from verl_doctor.toolkit.engine import registry
from verl_doctor.toolkit.testing import run_check

ROOT = Path(__file__).parent.parent
FOLDERS = ("toolkit", "checks", "patches")
SOURCES = [
    path
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "data" not in path.relative_to(ROOT).parts
]
PROBES = ROOT / "toolkit" / "probes"
PATIENT = {"torch", "vllm", "ray", "transformers", "verl", "triton"}
MOST_MODULES = 40


_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(?:\(([^)]*)\)|([^#\n(]+))|import[ \t]+([^#\n]+))",
    re.MULTILINE,
)
_COMMENT = re.compile(r"#.*")


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@functools.cache
def imported(path: Path) -> frozenset[str]:
    """Full names of everything that a file imports, at any depth. Texts in it that look like imports count too, so that few are parsed."""
    names = set()
    for package, several, one, alone in _IMPORT.findall(path.read_text("utf-8")):
        parts = re.findall(r"[\w.]+", _COMMENT.sub("", several or one or alone))
        assert not package.startswith("."), f"{path} imports relatively"
        names |= {f"{package}.{part}" if package else part for part in parts}
    return frozenset(names)


def really_imported(path: Path) -> frozenset[str]:
    """The same, as the syntax tree has them."""
    names = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(names)


def at_the_top(path: Path) -> frozenset[str]:
    """Full names imported by a file at its import."""
    tree = parsed(path)
    deeper = {
        node
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for node in ast.walk(function)
    }
    nodes = [node for node in ast.walk(tree) if node not in deeper]
    return frozenset(
        {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        | {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    )


def test_sources_import_no_package_of_the_environment() -> None:
    """A child's script may import them in a function: importing the script to pass it on does not run that."""
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in SOURCES
        if any(name.split(".")[0] in PATIENT for name in imported(path))
        for name in (at_the_top(path) if PROBES in path.parents else really_imported(path))
        if name.split(".")[0] in PATIENT
    ]
    assert found == []


def test_all_sources_are_walked() -> None:
    """Guards that walk too few files pass for nothing."""
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *(f"{folder}/*.py" for folder in FOLDERS)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    walked = {str(path.relative_to(ROOT)) for path in SOURCES}
    assert {name for name in tracked if "/data/" not in name and (ROOT / name).exists()} == walked


def test_no_folder_has_too_many_modules() -> None:
    counts = collections.Counter(
        path.parent for path in ROOT.rglob("*.py") if not {".git", ".venv", "build"} & set(path.parts)
    )
    crowded = {
        str(folder): count
        for folder, count in counts.items()
        if count > MOST_MODULES and ROOT / ".venv-dev" not in folder.parents
    }
    assert crowded == {}


def test_every_package_has_a_docstring() -> None:
    packages = [path for path in SOURCES if path.name == "__init__.py"]
    assert packages
    assert [str(path) for path in packages if not ast.get_docstring(parsed(path))] == []


def loaded_by(statement: str) -> set[str]:
    """Full names of the modules that a fresh interpreter has after a statement."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {statement}; print(' '.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT / ".dev")},
    )
    return set(done.stdout.split())


def test_doctor_starts_without_heavy_modules() -> None:
    """Imports of a command before it begins: no network module, no test framework, no package of the job."""
    loaded = loaded_by("import verl_doctor.toolkit.commands.check.command")
    assert not loaded & (PATIENT | {"http.client", "urllib.request", "pytest", "numpy"})


def test_command_line_loads_only_the_modules_of_its_command() -> None:
    loaded = loaded_by("import verl_doctor.toolkit.cli.main")
    assert not loaded & {
        "rich",
        "platformdirs",
        "verl_doctor.toolkit.engine.session",
        "verl_doctor.toolkit.rule",
    }


@pytest.mark.slow
def test_rarely_needed_modules_are_not_always_loaded() -> None:
    """Every check loads all rules and facts; few are given a launch script, or a source tree that is not remembered."""
    loaded = loaded_by("from verl_doctor.toolkit.engine import registry; registry.load()")
    readers = (
        "sources.shell.parse",
        "collectors.launch.reader",
        "sources.hydra.compose",
        "sources.python.resolve",
        "collectors.api.module_uses",
        "commands.matrix.matrix",
    )
    assert not loaded & {"yaml", *(f"verl_doctor.toolkit.{name}" for name in readers)}


BUILT_IN = [
    check for check in registry.load().checks if check.judge.__module__.startswith("verl_doctor.checks.")
]


def test_every_finding_of_a_built_in_rule_names_its_subject() -> None:
    """Fixes, renderers and judges decide by it; only a plugin's finding may lack one."""
    findings = [
        (check.code, finding)
        for check in BUILT_IN
        for example in check.examples
        for finding in run_check(check, *example.facts).findings
    ]
    assert {code for code, _ in findings} == {check.code for check in BUILT_IN}
    assert [code for code, finding in findings if not (finding.subject and finding.subject.name)] == []


def test_tree_contains_no_path_or_host_of_a_developer() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    suspects = ("/" + "work/", "/" + "root/", "/" + "opt/")
    found = []
    for name in filter(None, listed):
        path = ROOT / name
        if path.is_file() and path.name != Path(__file__).name:
            text = path.read_bytes().decode("utf-8", "replace")
            found += [f"{name}: {suspect}" for suspect in suspects if suspect in text]
    assert found == []


_RAISES = {"is_file": "isfile", "is_dir": "isdir", "exists": "exists"}
_ASKS = re.compile(rf"(?<!os\.path)\.(?:{'|'.join(_RAISES)})\(")
_ENTRIES = {"entry", "member"}  # of os.scandir and of an archive, which are asked nothing further


def test_unreadable_folder_never_raises() -> None:
    """`Path.is_file` and the like raise for unreadable folders before Python 3.14; the functions of os.path return False."""
    found = [
        f"{path.name}:{node.lineno}: say os.path.{_RAISES[node.func.attr]}"
        for path in SOURCES
        if _ASKS.search(path.read_text("utf-8"))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _RAISES
        and ast.unparse(node.func.value) not in {"os.path", *_ENTRIES}
    ]
    assert found == []


def test_numbers_from_900_are_reserved_for_plugins() -> None:
    assert [check.code for check in registry.load().checks if int(check.code[-3:]) >= 900] == []


def test_public_facts_are_collected() -> None:
    """Each public fact is one that a collector observes."""
    collected = {collector.name: collector.fact for collector in registry.load().collectors}
    assert {name: getattr(public_facts, name) for name in public_facts.__all__} == {
        name: collected[name] for name in public_facts.__all__
    }

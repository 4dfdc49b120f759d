"""Rules of the house that a reader would otherwise have to remember."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("toolkit", "checks", "patches")
SOURCES = [path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.py"))]
PATIENT = {"torch", "vllm", "ray", "transformers", "verl", "triton"}
VOCABULARY = {
    "rule",
    "facts",
    "change",
    "marker",
    "text",
    "target",
    "wishes",
    "line_edit",
    "line_list",
    "leftover",
    "ray_state",
    "worker_groups",
}


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
    """Full names of what is imported when a file is."""
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


def test_no_source_file_imports_the_patient() -> None:
    """The script of a child may, in a function: whoever imports the script to hand it over does not run that."""
    found = [
        f"{path.name}: {name}"
        for path in SOURCES
        if any(name.split(".")[0] in PATIENT for name in imported(path))
        for name in (at_the_top(path) if path.name.startswith("child_") else really_imported(path))
        if name.split(".")[0] in PATIENT
    ]
    assert found == []


def test_the_engine_imports_no_rule_and_no_fix() -> None:
    found = [
        f"{path.name}: {name}"
        for path in SOURCES
        if path.parent.name == "toolkit"
        for name in imported(path)
        if name.startswith(("verl_doctor.checks", "verl_doctor.patches"))
    ]
    assert found == []


def test_rules_and_fixes_import_only_the_vocabulary() -> None:
    found = [
        f"{path.name}: {name}"
        for path in SOURCES
        if path.parent.name != "toolkit"
        for name in imported(path)
        if name.startswith("verl_doctor.toolkit.")
        and (own := name.split(".")[2]) not in VOCABULARY
        and not own.startswith(("fact_", "py_"))
    ]
    assert found == []


def test_only_the_command_line_imports_click() -> None:
    found = [
        path.name
        for path in SOURCES
        if not path.name.startswith("cli") and "click" in {name.split(".")[0] for name in imported(path)}
    ]
    assert found == []


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


def test_the_doctor_starts_without_heavy_modules() -> None:
    """What a command pays before it begins: no network, no test framework, no patient."""
    loaded = loaded_by("import verl_doctor.toolkit.cli_check")
    assert not loaded & (PATIENT | {"http.client", "urllib.request", "pytest", "numpy"})


def test_the_command_line_loads_what_its_commands_need_when_one_is_asked_for() -> None:
    loaded = loaded_by("import verl_doctor.toolkit.cli")
    assert not loaded & {"rich", "platformdirs", "verl_doctor.toolkit.session", "verl_doctor.toolkit.rule"}


def test_what_few_checks_need_is_not_loaded_by_all() -> None:
    """Every check loads all rules and facts; few are given a launch script, or a source tree that is not remembered."""
    loaded = loaded_by("from verl_doctor.toolkit import registry; registry.load()")
    readers = {"shell_parse", "launch_reader", "hydra_compose", "py_resolve", "api_uses", "matrix"}
    assert not loaded & {"yaml", *(f"verl_doctor.toolkit.{name}" for name in readers)}


def test_no_path_or_host_of_a_developers_machine_is_in_the_tree() -> None:
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


def test_a_folder_that_may_not_be_entered_ends_no_look() -> None:
    """`Path.is_file` and its like raise where this user may not look (before Python 3.14); those of os.path say no."""
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

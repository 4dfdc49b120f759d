"""Names that state nothing are bound nowhere. CONTRIBUTING has the list of words."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EMPTY_NAMES = (
    "one", "said", "told", "asked", "say", "says", "saying", "tells", "telling", "ask", "asks", "asking", "asker", "asked_for",
    "hear", "hears", "heard", "talk", "speaker", "spoken", "knows", "wish", "wishes", "people", "somebody", "there",
    "want", "wants", "thing", "things", "stranger", "strangers", "Given", "Wanted", "Thing",
)  # fmt: skip
# Of code that only a person could do, where a message of ours means: determined, queried, printed, reported.
_OF_PERSONS = re.compile(
    r"(?:cannot|could not) be told(?! apart)|(?:could not|cannot) be asked|\bsaid nothing\b|\bnobody (?:tells|knows|asks|looks)\b"
)
# Where none of them stands as code may bind it, nothing is parsed: in prose a word follows, or a full stop.
_MAY_BIND = re.compile(rf"\b_*(?:{'|'.join(EMPTY_NAMES)})\b\s*(?:[^\w\s.]|in\b|$)", re.MULTILINE)


def bound_names(tree: ast.Module) -> Counter[str]:
    """Names bound by a module, counted: variables, parameters, functions and classes, `_told` and `told` alike."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
        elif isinstance(node, ast.arg):
            names.append(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.append(node.name)
    return Counter(name.lstrip("_") for name in names)


# Facts that keep their names, because files hold them.
_IN_FACTS = Counter({"there": 2})  # Unmet.there, and one in refusals.py


@pytest.fixture(scope="module")
def sources() -> dict[Path, str]:
    paths = [path for folder in ("toolkit", "checks", "patches") for path in (ROOT / folder).rglob("*.py")]
    assert len(paths) > 500
    return {path: path.read_text("utf-8") for path in paths}


@pytest.fixture(scope="module")
def found(sources: dict[Path, str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for text in sources.values():
        if _MAY_BIND.search(text):
            found.update(bound_names(ast.parse(text)))
    return found


@pytest.mark.parametrize("name", EMPTY_NAMES)
def test_empty_name_is_not_bound(name: str, found: Counter[str]) -> None:
    assert found[name] <= _IN_FACTS[name], (
        f"name what it is instead of {name!r}; CONTRIBUTING has a list of words"
    )


def test_no_text_describes_code_as_a_person(sources: dict[Path, str]) -> None:
    found = {str(path.relative_to(ROOT)): match[0] for path, text in sources.items() if (match := _OF_PERSONS.search(text))}  # fmt: skip
    assert not found
    assert _OF_PERSONS.search("its value cannot be told by reading")
    assert not _OF_PERSONS.search("a context and NCCL, which cannot be told apart")


def test_all_ways_of_binding_a_name_are_counted() -> None:
    tree = ast.parse("class Given: ...\ndef _told(one, *said): return [asked for asked in one]\nasked = 1\n")
    assert bound_names(tree) == {"Given": 1, "told": 1, "one": 1, "said": 1, "asked": 2}


@pytest.mark.parametrize(
    "code",
    [
        "_told()",
        "(a, one)",
        "(*said,\n)",
        "lambda one: 1",
        "[1 for asked in b]",
        "one: int",
        "told += 1",
        "(one := 1)",
        "for one \\\n in x: ...",
        "with a as told:",
        "one, b = x",
        "[a, said] = x",
        "(a,\n told\n) = x",
        "def f(one=1): ...",
        "class Given:",
        "class Given(Base):",
    ],
)
def test_no_file_that_binds_a_name_is_skipped(code: str) -> None:
    assert _MAY_BIND.search(code)
    assert not _MAY_BIND.search("told apart by one that said so. This one.")


def test_loops_of_tests_name_their_elements() -> None:
    """Except in what a repair writes into verl's sources."""
    loop = re.compile(r"\bfor one in\b(?! outputs)")
    found = [path.name for path in (ROOT / "tests").rglob("*.py") if loop.search(path.read_text("utf-8"))]
    assert set(found) <= {"test_words.py"}

"""Patches as data: extracted from a patched source, and applied to an equivalent one."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.trying import cases

from verl_doctor.toolkit.marker import Marker, foreign_words, marked_lines
from verl_doctor.toolkit.patchsets.patchset import (
    NoPlace,
    NotCarried,
    Patch,
    dump,
    edit_for,
    load,
    patches_of,
)
from verl_doctor.toolkit.sources.python.edit import Edit, SourceText
from verl_doctor.toolkit.sources.python.match import digest
from verl_doctor.toolkit.sources.python.restore import Restored, restored
from verl_doctor.toolkit.target import UsageError

OURS = Marker()
COMMENT = OURS.comment("VLLM102")


def taken_out(text: str) -> Restored:
    marked = {n: marker for n, marker, _ in marked_lines(text, OURS, foreign_words(text, OURS))}
    return restored(text, marked, OURS.word)


def patches_in(text: str) -> list[Patch]:
    found = list(patches_of("a.py", taken_out(text)))
    assert not [patch for patch in found if isinstance(patch, NotCarried)], found
    return [patch for patch in found if isinstance(patch, Patch)]


def brought(patch: Patch, text: str) -> str:
    source = SourceText(text.encode(), "a.py")
    edit = edit_for(patch, source)
    assert isinstance(edit, Edit), edit
    return source.edited([edit], f"# {patch.marker}").decode()


def same(one: str, other: str) -> bool:
    return digest(ast.parse(one)) == digest(ast.parse(other))


def replaced(text: str, old: str, new: str, comment: str = COMMENT) -> str:
    source = SourceText(text.encode(), "a.py")
    start = source.text.index(old)
    return source.edited([Edit(start, start + len(old), new)], comment).decode()


CALL = dedent(
    """\
    class Server:
        def start(self, args):
            return build(
                args,
                old=args.old,
                seed=0,
            )
    """
)


def test_taking_out_a_patch_restores_the_original() -> None:
    patched = replaced(CALL, "old=args.old", "new=not args.old")
    found = taken_out(patched)
    assert found.text == CALL
    assert [line for _, line in found.hunks] == [5]


def test_patch_records_its_place_and_effect() -> None:
    (patch,) = patches_in(replaced(CALL, "old=args.old", "new=not args.old"))
    assert (patch.path, patch.scope, patch.line) == ("a.py", "Server.start", 5)
    assert (patch.old, patch.new) == ("old=args.old", "new=not args.old")
    assert patch.marker == "verl-doctor: VLLM102"
    assert patch.steps == ("value", "keywords", 0)


def test_patch_fits_moved_and_reformatted_code() -> None:
    (patch,) = patches_in(replaced(CALL, "old=args.old", "new=not args.old"))
    other = (
        "import os\n\nclass Server:\n  def start(self, args):\n    # why\n"
        "    return build(args, old = args.old,  # this\n      seed=0)\n"
    )
    assert brought(patch, other).splitlines()[5:8] == [
        "    # return build(args, old = args.old,  # this  # verl-doctor: VLLM102",
        "    return build(args, new=not args.old,  # this  # verl-doctor: VLLM102",
        "      seed=0)",
    ]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (CALL.replace("seed=0", "seed=1"), "not in Server.start there; the nearest is in line 5"),
        (CALL.replace("class Server", "class Other"), "not in Server.start there"),
        (CALL + "        return build(args, old=args.old, seed=0)\n", "stands there 2 times, in lines 3, 8"),
        ("x = 1\n", "not in Server.start there"),
    ],
)
def test_patch_is_refused_for_different_code(other: str, reason: str) -> None:
    (patch,) = patches_in(replaced(CALL, "old=args.old", "new=not args.old"))
    answer = edit_for(patch, SourceText(other.encode(), "a.py"))
    assert isinstance(answer, NoPlace)
    assert reason in answer.reason


def test_several_replacement_lines_take_the_existing_indentation() -> None:
    before = "def f():\n    from a import b\n    return b\n"
    (patch,) = patches_in(
        replaced(
            before, "from a import b", "try:\n        from a import b\n    except ImportError:\n        b = 1"
        )
    )
    after = brought(patch, "def f():\n        from a import b  # noqa\n        return b\n")
    assert same(
        after, "def f():\n  try:\n    from a import b\n  except ImportError:\n    b = 1\n  return b\n"
    )


def test_patch_of_a_patch_is_one_patch_of_the_original() -> None:
    before = "from a import b, c\nx = 1\n"
    once = replaced(
        before,
        "from a import b, c",
        "try:\n    from a import b, c\nexcept ImportError:\n    from d import b, c",
    )
    for comment in (COMMENT, OURS.comment("VLLM103")):
        twice = replaced(once, "from d import b, c", "from e import b, c", comment)
        assert taken_out(twice).text == before
        (patch,) = patches_in(twice)
        assert same(brought(patch, before), twice)


def test_adjacent_patches_stay_separate() -> None:
    before = "from a import b\nfrom c import d\n"
    patched = replaced(
        replaced(before, "from c import d", "from c2 import d"), "from a import b", "from a2 import b"
    )
    assert taken_out(patched).text == before
    assert [patch.old for patch in patches_in(patched)] == ["from a import b", "from c import d"]


FOREIGN = {
    "kept above": "def f(a):\n    # x = g(a, 1)  # Uky\n    x = g(a, 2)  # Uky\n    return x\n",
    "kept below": "def f(a):\n    x = g(a, 2) # Uky\n    # x = g(a, 1) # Uky\n    return x\n",
    "commented out at the margin": "def f(a):\n#     x = g(a, 1) # Uky\n    x = g(a, 2) # Uky\n    return x\n",
    "two for one": "def f(a):\n    # x = g(a, 1)  # Uky\n    y = 2  # Uky\n    x = g(a, y)  # Uky\n    return x\n",
}  # fmt: skip


@pytest.mark.parametrize("form", FOREIGN)
def test_patches_written_by_hand_are_carried(form: str) -> None:
    before = "def f(a):\n    x = g(a, 1)\n    return x\n"
    (patch,) = patches_in(FOREIGN[form])
    assert patch.marker == "Uky"
    assert same(taken_out(FOREIGN[form]).text, before)
    assert same(brought(patch, before), FOREIGN[form])


def test_marked_line_without_an_original_is_undetermined() -> None:
    text = FOREIGN["kept above"] + "x = 1\ny = 2  # Uky\n"
    assert taken_out(text).undetermined == (6,)


def test_line_that_may_contain_a_secret_is_not_carried() -> None:
    text = replaced("login(1)\n", "login(1)", 'login(password="hunter2!")')
    (left,) = patches_of("a.py", taken_out(text))
    assert isinstance(left, NotCarried)
    assert "secret" in left.reason


def test_patch_file_survives_a_round_trip(tmp_path: Path) -> None:
    patches = patches_in(replaced(CALL, "old=args.old", "new=not args.old"))
    path = tmp_path / "patches.json"
    path.write_text(dump(patches, "0.6.1", "1.0"))
    assert load(path) == patches
    assert json.loads(path.read_text())["verl"] == "0.6.1"


def document(**changed: object) -> str:
    content = json.loads(dump(patches_in(replaced(CALL, "old=args.old", "new=1")), "", ""))
    content["patches"][0].update(changed)
    return json.dumps(content)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "is not a file of patches"),
        ("[]", "is not a file of patches"),
        ('{"schema_version": 1}', "is not a file of patches"),
        ('{"schema_version": 2, "patches": []}', "has schema version 2"),
        ('{"schema_version": 1, "patches": [3]}', "patch 1 is damaged"),
        (document(path="../../etc/passwd"), "patch 1 is damaged"),
        (document(path="/etc/passwd"), "patch 1 is damaged"),
        (document(statements=[]), "patch 1 is damaged"),
        (document(marker="x\nimport os"), "patch 1 is damaged"),
        (document(steps=[{}]), "patch 1 is damaged"),
        (document(line="5"), "patch 1 is damaged"),
        ("[" * 100_000, "is not a file of patches"),
    ],
)
def test_damaged_patch_file_is_reported_in_one_sentence(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "patches.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=reason):
        load(path)
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path / "none")


def test_invalid_steps_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "patches.json"
    for steps in (["value", "keywords", 7], ["nothing"], ["value", 0], ["value", "func", "ctx"]):
        path.write_text(document(steps=steps))
        answer = edit_for(load(path)[0], SourceText(CALL.encode(), "a.py"))
        assert isinstance(answer, NoPlace)
        assert "damaged" in answer.reason


# --- any source, any edits

NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.one_of(
    NAMES,
    st.integers(0, 9).map(str),
    st.builds("{}({}, k={})".format, NAMES, NAMES, st.integers(0, 9)),
    st.just('"""x\n  y"""'),
)
SIMPLE = st.one_of(
    st.builds("{} = {}".format, NAMES, VALUES),
    st.builds("from {} import {}, {}".format, NAMES, NAMES, st.just("z")),
    st.builds("{}(\n{},\n  {},  # why\n)".format, NAMES, VALUES, VALUES),
)


def _block(header: str, body: list[str]) -> str:
    lines = [line for statement in body for line in statement.split("\n")]
    if '"""' in "".join(lines):  # the text of a string is not indented
        return header + "\n    pass"
    return header + "\n" + "\n".join(f"    {line}" for line in lines)


STATEMENTS = st.recursive(
    SIMPLE,
    lambda inner: st.builds(
        _block,
        st.sampled_from(["def f():", "class A:", "if a:", "with b:"]),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=8,
)
SOURCES = st.lists(STATEMENTS, min_size=1, max_size=5).map("\n".join).map("{}\n".format)


def _parts(tree: ast.Module) -> list[ast.expr | ast.stmt]:
    kinds = (ast.Name, ast.Constant, ast.Call, ast.ImportFrom)
    return [node for node in ast.walk(tree) if isinstance(node, kinds) and not _stored(node)]


def _stored(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store)


@pytest.mark.slow
@settings(max_examples=cases(37), deadline=None)
@given(SOURCES, st.data())
def test_any_patch_can_be_taken_out_and_reapplied(text: str, data: st.DataObject) -> None:
    source = SourceText(text.encode(), "a.py")
    parts = _parts(source.tree)
    assume(parts)
    node = data.draw(st.sampled_from(parts))
    new = "try:\n    pass\nfinally:\n    pass" if isinstance(node, ast.ImportFrom) else "new(1)"
    if isinstance(node, ast.ImportFrom):
        new = source.indented(new, node)
    patched = source.edited([Edit(source.start(node), source.end(node), new)], COMMENT).decode()
    assert same(taken_out(patched).text, text)
    (patch,) = patches_in(patched)
    plain = ast.unparse(ast.parse(text))
    answer = edit_for(patch, SourceText(plain.encode(), "a.py"))
    if isinstance(answer, NoPlace):
        assert "times" in answer.reason
    else:
        assert same(brought(patch, plain), patched)

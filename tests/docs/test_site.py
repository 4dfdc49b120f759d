"""Pages of the site generated from the code, and references in the written ones."""

from __future__ import annotations

import json
import re
import sys

import pytest
from support.places import ROOT

sys.path.insert(0, str(ROOT / "docs"))

import compatibility_table
from check_links import problems
from site_pages import chinese, commands, releases, rules, schemas

from verl_doctor.toolkit.cli.main import cli
from verl_doctor.toolkit.commands.explain.quick_card import entries
from verl_doctor.toolkit.engine import registry
from verl_doctor.toolkit.engine.registry import Registry
from verl_doctor.toolkit.logs.signature import signatures

DOCS = ROOT / "docs"
WRITTEN = [
    path
    for path in sorted(DOCS.rglob("*.md"))
    if not {"_generated", "rules", "commands", "releases", "schemas"} & set(path.relative_to(DOCS).parts)
]


@pytest.fixture(scope="module")
def known() -> Registry:
    return registry.load()


def test_rule_page_shows_reports_and_log_lines(known: Registry) -> None:
    rule = known.check("CUDA105")
    assert rule is not None
    page = rules.rule_page(rule, known)
    assert page.count("\n# ") == 1
    for text in (
        "## Why it matters",
        "Triton cannot link -lcuda: AssertionError: libcuda.so cannot found!",
        "/usr/bin/ld: cannot find -l:libcuda.so.1: No such file or directory",
        "[triton-lang/triton#2582](https://github.com/triton-lang/triton/issues/2582)",
    ):
        assert text in page


def test_page_of_a_log_fault_quotes_a_log(known: Registry) -> None:
    page = rules.log_page("LOG106", known)
    assert "ImportError: cannot import name 'LLM' from 'vllm' (unknown location)" in page


def test_every_family_has_a_description(known: Registry) -> None:
    families = {check.family for check in known.checks if check.judge.__module__.startswith("verl_doctor.")}
    assert families | {"LOG"} == set(rules.FAMILIES)


def test_every_message_can_be_looked_up(known: Registry) -> None:
    page = rules.messages(known)
    missing = [
        signature.code
        for signature in signatures()
        if signature.code and f"({signature.code}.md)" not in page
    ]
    assert missing == []


def test_fence_is_longer_than_the_backticks_inside() -> None:
    assert list(rules._block(["a ```` b"])) == ["`````text", "a ```` b", "`````", ""]


def test_addresses_become_links_and_code_is_kept() -> None:
    assert rules.linked("see https://a.example/b, or `https://a.example/c`; x <y>") == (
        "see <https://a.example/b>, or `https://a.example/c`; x &lt;y>"
    )


def test_every_command_has_a_page_with_its_options() -> None:
    pages = commands.pages()
    page = pages["reference/commands/check.md"]
    assert "Usage: verl-doctor check" in page
    assert "--select" in page
    assert "## patches verify" in pages["reference/commands/patches.md"]
    hidden = {name for name in cli.list_commands(None) if cli.get_command(None, name).hidden}
    listed = {path.split("/")[-1].removesuffix(".md") for path in pages} - {"index"}
    assert listed == set(cli.list_commands(None)) - hidden


def test_every_schema_has_a_page() -> None:
    assert "reference/schemas/report.md" in schemas.pages()


def test_every_pair_of_releases_has_a_verdict_and_findings() -> None:
    data = json.loads(releases.DATA.read_text("utf-8"))
    assert releases.DATA.stat().st_size <= compatibility_table.LARGEST
    pages = releases.pages()
    assert len(pages) == 1 + len(data["verl"]) >= 11
    for verl in data["verl"]:
        assert list(data["pairs"][verl]) == data["vllm"]
        page = pages[f"releases/verl-{verl}.md"]
        for vllm in data["vllm"]:
            place = releases.anchor(verl, vllm)
            assert f"](#{place})" in pages["releases/index.md"]
            assert page.count(f"({place})=\n") == 1


def test_cell_shows_how_far_each_path_gets() -> None:
    assert releases.cell({"paths": {}}) == "unknown"
    assert releases.cell({"paths": {"async rollout": "starts"}}) == "starts"
    assert releases.cell({"paths": {"async rollout": "starts"}, "excluded": [0]}) == r"starts\*"
    assert releases.cell({"paths": {"async rollout": "start", "sync rollout": "start"}}) == "engine"
    assert (
        releases.cell({"paths": {"sync rollout": "import", "async rollout": "starts"}})
        == "async starts, sync import"
    )


def test_markup_in_a_finding_is_escaped() -> None:
    found = {
        "code": "VLLM102",
        "message": "no __x__ <b>",
        "places": ["verl/a.py:1"],
        "paths": ["async rollout"],
        "remedy": "a*b*",
        "fix": None,
    }
    assert releases._finding(found) == (
        "* [VLLM102](../rules/VLLM102.md), async rollout: no \\_\\_x\\_\\_ \\<b\\>. `verl/a.py:1`. a\\*b\\*"
    )


def test_chinese_card_has_every_entry() -> None:
    table = list(chinese.card())
    assert len(table) == 2 + len(entries())


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(DOCS)))
def test_everything_referred_to_by_a_page_exists(path, known: Registry) -> None:
    text = path.read_text("utf-8")
    for name in re.findall(r"`((?:tests|toolkit|checks|patches)/[\w./-]+)`", text):
        assert (ROOT / name).exists(), name
    codes = {check.code for check in known.checks} | {signature.code for signature in signatures()}
    families = "|".join(rules.FAMILIES)
    for code in re.findall(rf"\b(?:{families})\d{{3}}\b", text):
        assert code in codes, code


def test_every_field_report_names_a_command_and_a_test() -> None:
    lines = (DOCS / "field-reports.md").read_text("utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| situation")]
    assert len(rows) > 30
    for row in rows:
        _, _, command, prints, test, _ = re.split(r"(?<!\\)\|", row)
        assert command.strip().startswith("`verl-doctor "), row
        assert prints.strip(), row
        assert re.fullmatch(r"`tests/[\w/]+\.py`", test.strip()), row


def test_broken_link_is_found(tmp_path) -> None:
    (tmp_path / "a.html").write_text(
        "<h1 id=top>a</h1><a href='b.html#here'>b</a><a href='c.html'>c</a><a href='b.html#gone'>b</a>"
        "<script src='https://elsewhere.example/x.js'></script>",
        "utf-8",
    )
    (tmp_path / "b.html").write_text("<p id=here>b</p>", "utf-8")
    assert list(problems(tmp_path)) == [
        "a.html: loads https://elsewhere.example/x.js from elsewhere",
        "a.html: c.html leads nowhere",
        "a.html: b.html#gone leads nowhere",
    ]


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md", "CONTRIBUTING.md"])
def test_links_of_top_level_pages_lead_to_files(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    linked = [path for path in re.findall(r"\]\(([^)#]+)", text) if "://" not in path]
    assert [path for path in linked if not (ROOT / path).exists()] == []


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 250

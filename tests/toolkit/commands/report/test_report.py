"""Content of a report: everything printed by verl's own script, no secrets, and names only on request."""

from __future__ import annotations

import functools
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from support.index_server import IndexServer, wheel
from support.places import MACHINES
from support.report_seen import Known, seen
from support.running import Doctor
from support.schemas import validate

from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch, Word
from verl_doctor.toolkit.collectors.packages.resolution import Resolution
from verl_doctor.toolkit.commands.explain.schemas import schema_text
from verl_doctor.toolkit.commands.report import render_html, render_markdown, render_text, view
from verl_doctor.toolkit.commands.report.network import try_indexes
from verl_doctor.toolkit.commands.report.page import Mark, Points
from verl_doctor.toolkit.commands.report.seen import Seen
from verl_doctor.toolkit.commands.report.view import PageAnswer
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.logs.headline import headline
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.repair import repair
from verl_doctor.toolkit.result import CheckResult, Report

SECRET = "hf_" + "Zz9" * 12
HOST = "gpu-a100-007"
NAMES = (
    "annette",
    HOST,
    "cluster.uni",
    "10.11.12.13",
    "/data/home",
    "2001:db8:0:5::7",
    "02:42:ac:11:00:02",
    "nlp-group",
)
PLANTED = (
    f" annette@{HOST}.cluster.uni.example 10.11.12.13 /data/home/annette/x /tmp/of_annette [2001:db8:0:5::7]:80"
    f" 02:42:ac:11:00:02 nlp-group api_key={SECRET} https://annette:{SECRET}@host/x Bearer {SECRET}"
)
MACHINE = Machine(
    environ={"HOME": "/data/home/annette", "USER": "annette", "SLURM_JOB_ACCOUNT": "nlp-group"}, cwd=Path("/")
)
ITEMS = {
    "Python": ("Version", "Compiler", "Build", "Arch"),
    "Pip": ("Version", "Directory"),
    "Packages": ("vllm", "sglang", "ray", "torch"),
    "verl": ("Version", "Directory", "Commit Hash"),
    "Platform": ("Platform", "system", "release", "version"),
    "Hardware": ("machine", "processor", "CPU(s)"),
    "CUDA": ("CUDA Runtime", "CUDA Compiler"),
    "System": ("CPU Memory",),
    "GPUs": ("GPU Count",),
    "Network Test": ("Timing for pypi.org",),
}
"""What scripts/diagnose.py prints under which heading, the CPUs as lscpu has them; GPUs and variables are not always there."""


def made(look: Seen, *, masked: bool = True) -> PageAnswer:
    return view.make(look, MACHINE, masked=masked)


def views(one: PageAnswer) -> dict[str, str]:
    """All forms of the same report."""
    return {
        "markdown": "\n".join(render_markdown.render(one.page)),
        "html": render_html.render(one.page),
        "text": "\n".join(line.plain for line in render_text.render(one.page, None)),
        "json": json.dumps(one.document()),
    }


@functools.cache
def planted(*, masked: bool) -> dict[str, str]:
    return views(made(seen(PLANTED, f"{HOST}.cluster.uni.example"), masked=masked))


def rows(one: PageAnswer, title: str) -> list[tuple[str, ...]]:
    section = next(section for section in one.page.sections if section.title == title)
    return [row for block in section.blocks for row in getattr(block, "rows", ())]


def test_all_items_printed_by_diagnose_are_included() -> None:
    found = rows(made(seen()), "System")
    for heading, names in ITEMS.items():
        values = next(value for title, value in found if title == heading)
        assert [name for name in names if not re.search(rf"(^|; ){re.escape(name)} \S", values)] == []
    assert (
        "GPUs",
        "GPU Count 8; GPU 0-7 Type NVIDIA H200, compute capability 9.0; GPU 0-7 Memory 140 GiB",
    ) in found
    assert ("node", "host-1") in found
    text = views(made(seen()))["markdown"]
    assert all(f"| {name} |" in text for name in ("CC", "VERL_X", "OMP_NUM_THREADS"))


def test_report_fits_a_screen_or_two_without_what_is_folded() -> None:
    lines = views(made(replace(seen(), log=None, compared=None)))["markdown"].splitlines()
    unfolded = re.sub(r"(?s)<details>.*?</details>", "", "\n".join(lines)).splitlines()
    assert len(unfolded) < 120
    assert len(lines) < 180


def test_silenced_rules_are_shown_with_their_reasons() -> None:
    look = seen()
    silenced = CheckResult(
        "RAY104", "A rule", "skipped", "ignored until 2026-12-01: OPS-12", reason_kind="ignored until a date"
    )
    look = replace(look, report=replace(look.report, results=(*look.report.results, silenced)))
    section = next(part for part in made(look).page.sections if part.title == "Silenced by the configuration")
    assert section.blocks == (Points(("RAY104: ignored until 2026-12-01: OPS-12",)),)


def test_proposed_repairs_show_the_lines_that_they_change() -> None:
    text = views(made(seen()))["markdown"]
    assert "VLLM101: A repair (planned, safe): because; restart afterwards: Ray" in text
    assert "+++ b/x\n-old\n+new\n" in text


def test_command_of_the_job_is_shown_as_the_script_makes_it() -> None:
    words = tuple(Word(f"a.b{n}={'x' * 40} y", "/jobs/run.sh", 4) for n in range(3))
    job = Command(
        "verl.trainer.main_ppo", (*words, Word(None, "/jobs/run.sh", 6, "$MORE")), "/jobs/run.sh", 3
    )
    text = views(made(replace(seen(), facts=Known(Launch((), command=job)))))["markdown"]
    assert "run.sh:3 starts verl.trainer.main_ppo, 4 words" in text
    shown = text.partition("```sh\n")[2].partition("\n```")[0].replace("\\\n", "")
    assert shlex.split(shown) == ["verl.trainer.main_ppo", *(word.text for word in words), "$MORE"]


def test_package_indexes_are_queried_as_by_pip(tmp_path: Path) -> None:
    with IndexServer([wheel("pip", "24.0", {"pip/x.py": ""})]) as server:
        environ = {
            "HOME": str(tmp_path),
            "PIP_INDEX_URL": f"{server.url}/simple",
            "PIP_EXTRA_INDEX_URL": "http://127.0.0.1:1/simple",
        }
        answered, silent = try_indexes(Machine(environ=environ, cwd=tmp_path, root=tmp_path), tmp_path)
    assert (answered.host, answered.trouble, answered.is_public) == ("127.0.0.1", "", False)
    assert "Connection refused" in silent.trouble


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model", "data", "torch", "weights"])
def test_user_named_like_a_word_of_the_page_garbles_nothing(name: str) -> None:
    look = seen(f" /home/{name}/x the {name} model data torch weights")
    page = view.make(
        look, Machine(environ={"HOME": f"/home/{name}", "USER": name}, cwd=Path("/")), masked=True
    ).page
    assert f" ~/x the {name} model data torch weights" in views(PageAnswer(page, {}))["text"]


def test_missing_observations_are_reported_with_the_reason() -> None:
    empty = Seen(seen().report, Known(), "0.1.0", "2026-11-22T01:00:00Z")
    found = rows(made(empty), "System")
    assert ("System", "CPU Memory not known: nobody looked for HostMemory") in found
    text = views(made(empty))["markdown"]
    assert "What the workers see is unknown: nobody looked for EffectiveEnvironment." in text


@pytest.mark.parametrize("form", ["markdown", "html", "text", "json"])
def test_names_are_masked_everywhere(form: str) -> None:
    text = planted(masked=True)[form]
    assert [name for name in (*NAMES, SECRET) if name in text] == []
    assert "USER@node-007" in text.replace("\\", "")
    assert "address-1" in text


@pytest.mark.parametrize("form", ["markdown", "html", "text", "json"])
def test_full_output_contains_names_and_no_secrets(form: str) -> None:
    text = planted(masked=False)[form]
    assert [name for name in NAMES if name not in text.replace("\\", "")] == []
    assert SECRET not in text


@pytest.mark.parametrize("unexamined", ["", "no verl was found"])
def test_title_names_the_failure_in_the_logs_where_check_finds_none(unexamined: str) -> None:
    look = seen()
    assert look.log is not None
    passed = CheckResult("PY101", "t", "pass")
    found = replace(look.report, results=(passed,), nodes=None, jobs=(), unexamined=unexamined)
    page = made(replace(look, report=found)).page
    word, why = headline(look.log)
    assert (page.word, page.mark) == (word, Mark.BAD)
    assert page.sentence.startswith(why)
    assert (unexamined or "by 1 rule") in page.sentence


def test_sections_are_ordered_from_verdict_to_evidence() -> None:
    titles = [section.title for section in made(seen()).page.sections]
    assert titles == [
        "What was examined",
        "What to do next",
        "Nodes",
        "What the logs show",
        "Findings",
        "Proposed repairs",
        "Hints",
        "What differs from where it worked",
        "How start-up time was spent",
        "How long the model takes to load",
        "Environment as the workers see it",
        "System",
        "What could not be checked",
    ]


@pytest.mark.slow
def test_failed_run_on_a_healthy_machine_is_not_reported_as_healthy() -> None:
    look = seen()
    well = replace(look, report=replace(look.report, results=look.report.results[1:2], nodes=None))
    page = made(well).page
    assert (page.word, page.mark) == ("FIRST CAUSE", Mark.BAD)
    assert page.sentence == "CUDA102: libcuda is a stub; this machine: NO FAULT FOUND, by 1 rule"
    assert made(replace(well, log=None)).page.word == "NO FAULT FOUND"
    assert made(look).page.word == "WILL FAIL"
    assert made(look).page.sentence.endswith("; the logs: FIRST CAUSE, CUDA102: libcuda is a stub")


def test_long_value_is_truncated_with_a_note() -> None:
    look = replace(seen(), facts=Known(Variables({"PATH": "x" * 5000})))
    assert "x... (5,000 characters)" in views(made(look))["markdown"]


def test_document_matches_its_schema() -> None:
    for look in (seen(), Seen(seen().report, Known(), "0.1.0", "2026-11-22T01:00:00Z")):
        document = made(look).document()
        validate(json.loads(json.dumps(document)), schema_text("page"))
    assert document["check"]["results"][0]["code"] == "VLLM101"


@pytest.mark.slow
def test_report_of_a_thousand_nodes_is_short() -> None:
    many = seen(node="node[001-333],other[001-333],third-[1-334]")
    assert len(views(made(many))["html"]) < 60_000
    assert len(views(made(many))["markdown"]) < 20_000


@pytest.mark.parametrize("masked", [True, False])
def test_value_of_a_secret_variable_is_masked_in_each_form(
    masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the page for a browser, which is written to a file of its own, with signs that HTML writes in another way."""
    value = "Gpu7<of&9\"lab's"
    monkeypatch.setenv("MY_DB_PASSWORD", value)
    look = seen(f" and {value}", "n1")
    for text in views(made(look, masked=masked)).values():
        assert "Gpu7" not in text
        assert "of&amp;9" not in text


@pytest.fixture
def laptop() -> Path:
    return MACHINES / "laptop.json"


@pytest.mark.slow
def test_report_is_written_to_two_files(here: Doctor, tmp_path: Path, laptop: Path) -> None:
    done = here("report", "--facts", laptop, "--html", "page.html", "--output", "page.md", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, ""), "there is no verl"
    assert "wrote page.html" in done.stderr
    assert (tmp_path / "page.md").read_text().startswith("<!-- verl-doctor report -->\n## verl-doctor: ")
    assert "<!doctype html>" in (tmp_path / "page.html").read_text()
    again = here("report", "--facts", laptop, "--html", "page.html", "--output", "page.md", cwd=tmp_path)
    assert again.returncode == 3


@pytest.mark.slow
@pytest.mark.parametrize("form", ["markdown", "text", "json"])
def test_own_report_files_are_replaced_in_each_format(
    here: Doctor, tmp_path: Path, laptop: Path, form: str
) -> None:
    for _ in range(2):
        assert (
            here("report", "--facts", laptop, "--format", form, "--output", "it", cwd=tmp_path).returncode
            == 3
        )


@pytest.mark.slow
def test_other_files_are_not_overwritten(here: Doctor, tmp_path: Path, laptop: Path) -> None:
    mine = tmp_path / "thesis.html"
    mine.write_text("<html>three years</html>")
    done = here("report", "--facts", laptop, "--html", mine, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "exists and is not a verl-doctor report: name another file, or add --force" in done.stderr
    assert mine.read_text() == "<html>three years</html>"
    assert here("report", "--facts", laptop, "--html", mine, "--force", cwd=tmp_path).returncode == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--facts", "nowhere.json"), "cannot be read"),
        (("--from", "nowhere.json"), "cannot be read"),
        (("--log", "nowhere.log"), "nowhere.log"),
        (("--facts", "x", "--network"), "--network tests this machine"),
        (("--facts", "x", "--cluster"), "options that query nodes"),
        (("--html", "/no/such/folder/x.html"), "cannot be written"),
        (("--html", ""), "is a variable unset?"),
        (("--format", "pdf"), "pdf"),
    ],
)
def test_invalid_input_is_reported_in_one_sentence(
    here: Doctor, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    done = here("report", "--select", "PY", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert re.fullmatch(r"verl-doctor: [^\n]+\n", done.stderr)


@pytest.mark.slow
def test_logs_and_comparison_are_included(here: Doctor, tmp_path: Path, laptop: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("Traceback (most recent call last):\nModuleNotFoundError: No module named 'flash_attn'\n")
    done = here("report", "--facts", laptop, "--log", log, "--from", laptop, "--format", "json", cwd=tmp_path)
    parsed = json.loads(done.stdout)
    validate(parsed, schema_text("page"))
    assert parsed["log"]["target"]["lines"] == 2
    assert parsed["compared"]["verdict"] == "equal"
    assert {"What the logs show", "What differs from where it worked"} <= {
        section["title"] for section in parsed["page"]
    }


@pytest.mark.slow
def test_several_machines_share_one_page(here: Doctor, tmp_path: Path, laptop: Path) -> None:
    for name in ("ann-box-1", "ann-box-2", "ann-box-3"):
        (tmp_path / f"{name}.json").write_bytes(laptop.read_bytes())
    done = here("report", "--facts", tmp_path, cwd=tmp_path)
    assert "3 nodes agree" in done.stdout
    assert "ann-box" not in done.stdout
    refused = here("report", "--facts", tmp_path, "--from", laptop, cwd=tmp_path)
    assert refused.returncode == 2
    assert "name one file with --facts" in refused.stderr


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("report",), ("check", "--format", "sarif")])
def test_plans_are_made_without_the_package_index(
    here: Doctor, tmp_path: Path, monkeypatch, arguments
) -> None:
    requested: list[Session] = []

    def shown(session: Session, _facts: object, report: Report, **_options: object) -> Report:
        requested.append(session)
        return report

    monkeypatch.setattr(repair, "show", shown)
    here(*arguments, cwd=tmp_path)
    (session,) = requested
    assert isinstance(session.look().get(Resolution), Unknown)

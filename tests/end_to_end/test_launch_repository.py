"""Teams that keep their launch scripts in git: `check --each`, the hook for pre-commit, the workflow in the guide about CI."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.miniatures.variant_verl import variant_verl
from support.places import ROOT
from support.running import Doctor

CALL = "python3 -m verl.trainer.main_ppo"
RULES = ("--select", "CFG,ENV", "--ignore", "CFG105,CFG111,CFG112,CFG122,CFG124,CFG126,ENV118")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with a sound script, two with faults, and one that starts nothing; the pinned verl lies in it."""
    top = tmp_path / "repo"
    variant_verl(top / "pinned")
    (top / ".git").mkdir()
    (top / "jobs").mkdir()
    for name, text in {
        "good.sh": f"{CALL} data.train_batch_size=8\n",
        "typo.sh": f"set -e\nverl-doctor guard --lock team.lock --apply -- {CALL} data.trian_batch_size=8\n",
        "windows.sh": f"{CALL} data.train_batch_size=8\r\n",
        "clean.sh": "verl-doctor clean --apply\nverl-doctor guard --lock team.lock || exit\n",
    }.items():
        (top / "jobs" / name).write_text(text, "utf-8", newline="")
    return top


@pytest.mark.slow
def test_each_file_is_judged_as_a_separate_job(here: Doctor, repo: Path) -> None:
    files = [f"jobs/{name}.sh" for name in ("good", "typo", "windows", "clean")]
    done = here("check", "--each", *RULES, "--verl", "pinned", *files, cwd=repo)
    typo, windows, waiting, summary = done.stdout.splitlines()
    assert typo.startswith("jobs/typo.sh:2: CFG101 error: ")
    assert "did you mean data.train_batch_size?" in typo
    assert windows.startswith("jobs/windows.sh: CFG107 error: ")
    assert waiting.startswith("jobs/typo.sh: ")
    assert waiting.endswith(" for CFG101")
    assert summary == "4 scripts judged, 2 will fail, 0 not checked"
    assert (done.returncode, done.stderr) == (1, "")
    good = here("check", "--each", *RULES, "--verl", "pinned", files[0], files[3], cwd=repo)
    assert (good.returncode, good.stdout) == (0, "2 scripts judged, 0 will fail, 0 not checked\n")


def test_other_formats_contain_all_files(here: Doctor, repo: Path) -> None:
    check_each = (
        "check",
        "--each",
        *RULES,
        "--verl",
        "pinned",
        "jobs/typo.sh",
        "jobs/windows.sh",
        "jobs/good.sh",
    )
    document = json.loads(here(*check_each, "--format", "json", cwd=repo).stdout)
    status = {result["code"]: result["status"] for result in document["results"]}
    assert (status["CFG101"], status["CFG107"], status["CFG102"]) == ("fail", "fail", "pass")
    assert document["verdict"] == "failures"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name at least one"),
        (("--facts", "x", "jobs/good.sh"), "without --facts"),
        (("--verl", "pinned", "nowhere.sh"), "no such file"),
    ],
)
def test_invalid_arguments_print_one_sentence(
    here: Doctor, repo: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = here("check", "--each", *arguments, cwd=repo)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert message in done.stderr


@pytest.mark.slow
def test_rule_is_silenced_for_one_script_with_a_reason(here: Doctor, repo: Path) -> None:
    (repo / "verl-doctor.toml").write_text(
        '[per_file_ignores."jobs/typo.sh"]\nCFG101 = { reason = "meant, OPS-12", until = 2099-12-31 }\n'
    )
    (repo / "jobs/other.sh").write_text((repo / "jobs/typo.sh").read_text())
    arguments = (*RULES, "--verl", "pinned", "jobs/typo.sh")
    done = here("check", "--each", *arguments, "jobs/other.sh", cwd=repo)
    found = [line for line in done.stdout.splitlines() if " CFG101 error: " in line]
    assert [line.partition(":")[0] for line in found] == ["jobs/other.sh"]
    assert done.stdout.splitlines()[-1].endswith("1 error silenced (CFG101)")
    alone = here("check", *arguments, cwd=repo)
    assert "1 error silenced (CFG101)" in alone.stdout.splitlines()[0]
    assert "CFG101: ignored until 2099-12-31: meant, OPS-12" in alone.stdout
    assert alone.returncode == 0
    here("check", *arguments, "--save-facts", "facts.json", cwd=repo)
    from_facts = here("check", *RULES, "--facts", "facts.json", cwd=repo)
    assert "1 error silenced (CFG101)" in from_facts.stdout.splitlines()[0]


@pytest.mark.slow
@pytest.mark.parametrize("each", [("--each",), ()])
def test_pattern_that_matches_no_file_is_reported(here: Doctor, repo: Path, each: tuple[str, ...]) -> None:
    (repo / "verl-doctor.toml").write_text(
        '[per_file_ignores."jobs/tpyo.sh"]\nCFG101 = { reason = "meant, OPS-12", until = 2099-12-31 }\n'
    )
    done = here("check", *each, *RULES, "--verl", "pinned", "jobs/typo.sh", "--json", cwd=repo)
    (line,) = done.stderr.splitlines()
    assert 'per_file_ignores."jobs/tpyo.sh" silences nothing: no file below ' in line
    assert done.returncode == 1


@pytest.mark.slow
def test_what_could_not_be_judged_is_named(here: Doctor, repo: Path) -> None:
    done = here("check", "--each", "jobs/good.sh", "jobs/clean.sh", cwd=repo)
    *lines, summary = done.stdout.splitlines()
    assert sum(line.startswith("NOT CHECKED: no verl was found") for line in lines) == 1
    assert (summary, done.returncode) == ("2 scripts judged, 0 will fail, 2 not checked", 3)


@pytest.fixture
def on_path(repo: Path) -> dict[str, str]:
    """An environment in which `verl-doctor` is this one."""
    folder = repo.parent / "bin"
    folder.mkdir()
    (folder / "verl-doctor").write_text(
        f'#!/bin/sh\nexec {sys.executable} -m verl_doctor.toolkit "$@"\n', "utf-8"
    )
    (folder / "verl-doctor").chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / ".dev")}


def run(command: str, cwd: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-e", "-c", command], cwd=cwd, env=environ, capture_output=True, text=True, check=False
    )


def documented_yaml(name: str) -> Any:
    text = (ROOT / "docs/guides/ci.md").read_text("utf-8")
    block = re.search(rf"```yaml\n# {re.escape(name)}\n(.*?)```", text, re.DOTALL)
    assert block is not None
    return yaml.safe_load(block[1])


@pytest.mark.slow
def test_hook_judges_the_files_passed_by_pre_commit(repo: Path, on_path: dict[str, str]) -> None:
    """File names are appended to the entry and its arguments, as by pre-commit."""
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    (used,) = documented_yaml(".pre-commit-config.yaml")["repos"][0]["hooks"]
    assert hook["id"] == used["id"]
    assert used["args"][: len(hook["args"])] == hook["args"]
    (repo / "jobs" / "values.yaml").write_text("- a list\n", "utf-8")
    (repo / "jobs" / "runtime_env.yaml").write_text("- a list\n", "utf-8")
    names = [str(path.relative_to(repo)) for path in sorted((repo / "jobs").iterdir())]
    files = [name for name in names if re.search(hook["files"], name)]
    assert sorted({*names} - {*files}) == ["jobs/values.yaml"]
    done = run(" ".join([hook["entry"], *used["args"], *files]), repo, on_path)
    assert done.returncode == 1, done.stderr
    assert [line.split(": ")[0] for line in done.stdout.splitlines() if " error: " in line] == [
        "jobs/runtime_env.yaml",
        "jobs/typo.sh:2",
        "jobs/windows.sh",
    ]


@pytest.mark.slow
def test_workflow_annotates_and_reports(repo: Path, on_path: dict[str, str]) -> None:
    job = documented_yaml(".github/workflows/launch-scripts.yml")["jobs"]["check"]
    steps = {step["name"]: step for step in job["steps"] if "name" in step}
    environ = {**on_path, **job["env"]}
    done = run(steps["annotate"]["run"], repo, environ)
    assert done.returncode == 1, done.stderr
    assert "::error file=jobs/typo.sh,line=2,title=CFG101 " in done.stdout
    assert run(steps["report"]["run"], repo, environ).returncode == 0
    log = json.loads((repo / steps["upload"]["with"]["sarif_file"]).read_text("utf-8"))
    places = [place for result in log["runs"][0]["results"] for place in result["locations"]]
    uris = {place["physicalLocation"]["artifactLocation"]["uri"] for place in places}
    assert uris == {"jobs/typo.sh", "jobs/windows.sh"}
    assert "pip install --no-deps --target pinned verl==" in steps["install"]["run"]

"""The table of the effective environment: in a terminal, in a pipe, as Markdown and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.running import inside
from support.schemas import validate

from verl_doctor.toolkit.collectors.variables.effective_environment import (
    WITHHELD,
    Assigned,
    Clash,
    Effective,
    EffectiveEnvironment,
    RayletHere,
    Value,
)
from verl_doctor.toolkit.commands.environment.document import document
from verl_doctor.toolkit.commands.environment.render import markdown_lines, text_lines
from verl_doctor.toolkit.commands.explain.schemas import schema_text
from verl_doctor.toolkit.text import without_middle

CONSTANTS = "/env/lib/verl/trainer/constants_ppo.py"
LOST = Effective(
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
    Value("a\x1b[31m" + "x" * 200),
    (Value(),),
    (Value(),),
    "nobody",
    "/home/me/run.sh",
    3,
    Assigned(Value("true"), "training workers", CONSTANTS, 90),
)
GIVEN = Effective("NCCL_DEBUG", Value(), (Value(),), (Value("WARN"),), "verl", CONSTANTS, 87)
SAME = Effective("HF_HOME", Value("/hf"), (Value("/hf"),), (Value("/hf"),), "the raylet")
TOKEN = Effective("HF_TOKEN", Value(undetermined=WITHHELD, present=True), (Value(),), (Value(),), "nobody")
COUNTED = Effective(
    "NCCL_CUMEM_ENABLE",
    Value("1"),
    (Value("1"),),
    (Value("1"),),
    "the driver",
    later=(Assigned(Value("0"), "rollout servers", "/env/lib/verl/workers/server.py", 8),),
)
UNDETERMINED = Effective(
    "RANK", Value("0"), (Value(),), (Value(undetermined="each has its own", present=True),), "verl"
)
STANDING = EffectiveEnvironment(
    (SAME, TOKEN, COUNTED, GIVEN, UNDETERMINED, LOST),
    (RayletHere(7, "10.0.0.2"),),
    "10.0.0.1:6379",
    "/env/lib/verl/trainer/main_ppo.py",
    ("something was not read",),
)
TWO = EffectiveEnvironment(
    (
        Effective(
            "HF_HOME", Value("/a"), (Value("/a"), Value("/b")), (Value("/a"), Value("/b")), "the raylet"
        ),
    ),
    (RayletHere(7), RayletHere(8)),
    "10.0.0.1:6379",
)


def lines(environment: EffectiveEnvironment, width: int | None = 80, *, every: bool = False) -> list[str]:
    return [text.plain for text in text_lines(environment, width, every=every)]


def test_every_row_shows_the_deciding_party_and_place() -> None:
    text = "\n".join(lines(STANDING))
    assert text.startswith("DIFFERS  2 variables of the driver are different for its workers\n")
    assert "pid 7" in text
    assert "something was not read" in text
    assert "verl\n      verl/trainer/constants_ppo.py:87" in text
    assert "nobody\n      /home/me/run.sh:3" in text
    assert "verl omits its default true" in text
    assert "rollout servers: 0 (verl/workers/server.py:8)" in text
    assert "- not set; *** set, possibly a secret; ? unknown" in text
    assert "HF_HOME" not in text
    assert "1 variable with the same value everywhere (-v shows all)" in text
    assert "HF_HOME" in "\n".join(lines(STANDING, every=True))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_table_fits_the_terminal_and_neutralises_escapes(width: int) -> None:
    found = lines(STANDING, width)
    table = [line for line in found if line.startswith("  ") and not line.startswith("   ")]
    assert max(map(len, table)) <= max(width, 72)
    assert "\x1b" not in "\n".join(found)


def test_long_value_keeps_both_ends() -> None:
    assert len(without_middle("/data/cache/of/everybody", 12)) == 12
    assert without_middle("/data/cache/of/everybody", 12).startswith("/data")
    assert without_middle("/data/cache/of/everybody", 12).endswith("body")
    assert without_middle("short", 12) == "short"


def test_differing_raylets_are_shown_separately() -> None:
    text = "\n".join(lines(TWO))
    assert "raylet 7: /a, its workers: /a" in text
    assert "raylet 8: /b, its workers: /b" in text


@pytest.mark.parametrize(
    ("environment", "word"),
    [
        (EffectiveEnvironment((SAME,)), "SAME"),
        (EffectiveEnvironment(), "SAME"),
        (EffectiveEnvironment((SAME,), standing="10.0.0.9:1"), "UNKNOWN"),
        (STANDING, "DIFFERS"),
    ],
)
def test_headline_states_the_result(environment: EffectiveEnvironment, word: str) -> None:
    assert lines(environment)[0].startswith(f"{word}  ")


def test_markdown_has_one_line_per_variable() -> None:
    found = list(markdown_lines(STANDING, every=True))
    assert len([line for line in found if line.startswith("| ")]) == 1 + len(STANDING.rows)
    assert any("rollout servers: 0" in line for line in found)


def test_document_matches_its_schema() -> None:
    clash = Clash("NCCL_ALGO", "/home/me/env.yaml", 3, CONSTANTS, 153)
    for environment in (STANDING, TWO, EffectiveEnvironment(clashes=(clash,))):
        validate(json.loads(json.dumps(document(environment))), schema_text("environment"))
    assert document(STANDING)["variables"][1]["driver"] == {
        "set": True,
        "text": None,
        "undetermined": WITHHELD,
    }


@pytest.mark.slow
def test_command_without_any_verl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    words = ("environment", "--all", "--format", "json", "--output", "table.json")
    done = inside(*words, cwd=tmp_path, monkeypatch=monkeypatch, capfd=capfd)
    assert (done.returncode, done.stdout) == (0, "")
    table = json.loads((tmp_path / "table.json").read_text())
    validate(table, schema_text("environment"))
    (row,) = [row for row in table["variables"] if row["name"] == "NCCL_DEBUG"]
    assert (row["driver"]["text"], row["decided_by"]) == ("INFO", "the driver")


def test_missing_launch_script_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    done = inside("environment", "none.sh", cwd=tmp_path, monkeypatch=monkeypatch, capfd=capfd)
    assert done.returncode == 2
    assert "none.sh" in done.stderr

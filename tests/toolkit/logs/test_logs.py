"""`verl-doctor logs`: input, output in each format, and harmless handling of any log."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from support.logs.builder import DRIVER_SAW_IT, NOISE, RAY, spoken, told_by, traceback
from support.running import Doctor
from support.schemas import validate

from verl_doctor.toolkit.commands.explain.schemas import schema_text
from verl_doctor.toolkit.commands.logs import render
from verl_doctor.toolkit.exit_code import ExitCode
from verl_doctor.toolkit.logs import excerpt as logs_excerpt
from verl_doctor.toolkit.logs import sources
from verl_doctor.toolkit.logs.answer import Answer, Confirmation
from verl_doctor.toolkit.logs.diagnosis import read
from verl_doctor.toolkit.logs.excerpt import excerpt
from verl_doctor.toolkit.logs.lines import log_lines
from verl_doctor.toolkit.logs.next_steps import next_steps
from verl_doctor.toolkit.logs.signature import read as signatures_in
from verl_doctor.toolkit.logs.sources import Source, UnreadableError, opened, sources_of
from verl_doctor.toolkit.system.secret import without_secrets

LCUDA = told_by("/usr/bin/ld: cannot find -lcuda: No such file or directory\n", RAY)


def said(text: str | bytes) -> list[tuple[int, str]]:
    """Relevant lines of a log, and their numbers."""
    raw = text if isinstance(text, bytes) else text.encode()
    return [(line.number, line.text) for line in excerpt(io.BytesIO(raw).read).lines]


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_verdict_is_followed_by_proof_and_next_step(here: Doctor, tmp_path: Path) -> None:
    done = here("logs", written(tmp_path, "run.log", LCUDA), cwd=tmp_path)
    lines = done.stdout.splitlines()
    at = LCUDA.split("\n").index(f"{RAY}/usr/bin/ld: cannot find -lcuda: No such file or directory") + 1
    assert done.returncode == 1
    assert lines[0].startswith("FIRST CAUSE  CUDA105: Triton could not link")
    assert f"run.log:{at} (WorkerDict pid=4711)" in lines[1]
    assert "\n  verl-doctor check --select CUDA105 --deep\n" in done.stdout
    assert "The actor died unexpectedly" in done.stdout.partition("Consequences:")[2]


def test_first_cause_comes_first_in_the_document(here: Doctor, tmp_path: Path) -> None:
    done = here("logs", written(tmp_path, "run.log", LCUDA), "--format", "json", cwd=tmp_path)
    found = json.loads(done.stdout)
    validate(found, schema_text("logs"))
    assert (found["verdict"], [result["code"] for result in found["results"]]) == ("failures", ["CUDA105"])
    assert found["results"][0]["status"] == "fail"
    finding = found["results"][0]["findings"][0]
    assert finding["fix"] == {"id": "libcuda-link", "safety": "safe"}
    assert finding["confirm"] == "verl-doctor check --select CUDA105 --deep"
    assert "-lcuda" in found["results"][0]["findings"][0]["evidence"]["lines"][0]


@pytest.mark.parametrize(
    ("text", "code", "verdict", "words"),
    [
        (DRIVER_SAW_IT, 3, "NOT DETERMINED", "only a consequence"),
        (NOISE, 0, "OK", "these logs show no failure"),
        (traceback("KeyboardInterrupt"), 3, "NOT DETERMINED", "ended the run"),
    ],
)
def test_verdict_without_a_cause_is_ok_or_not_determined(
    here: Doctor, tmp_path: Path, text: str, code: int, verdict: str, words: str
) -> None:
    path = written(tmp_path, "run.log", text)
    done = here("logs", path, cwd=tmp_path)
    assert done.stdout.startswith(verdict)
    assert words in done.stdout
    found = json.loads(here("logs", path, "--format", "json", cwd=tmp_path).stdout)
    validate(found, schema_text("logs"))
    assert (found["verdict"], found["results"]) == (verdict.lower().replace(" ", "_"), [])
    assert done.returncode == code


def test_markdown_matches_the_text(here: Doctor, tmp_path: Path) -> None:
    done = here("logs", written(tmp_path, "run.log", LCUDA), "--format", "markdown", cwd=tmp_path)
    assert done.stdout.startswith("## First cause: CUDA105")
    assert "    verl-doctor explain CUDA105" in done.stdout


def test_compressed_logs_folders_and_several_ranks_are_read_together(here: Doctor, tmp_path: Path) -> None:
    folder = tmp_path / "session" / "logs"
    written(folder, "job-driver-1.log.gz", gzip.compress(DRIVER_SAW_IT.encode()))
    worker = written(
        folder, "worker-ab-01000000-4711.err", traceback("OSError: [Errno 24] Too many open files")
    )
    written(folder, "raylet.out", "[2026-11-20 10:00:00,000 I 1 2] (raylet) main.cc:1: fine\n")
    written(folder, "core", b"\x7fELF\0\0\0" * 100)
    done = here("logs", folder, "--format", "json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert [result["code"] for result in found["results"]] == ["HOST103"]
    assert found["results"][0]["findings"][0]["location"] == {"path": str(worker), "line": 4}
    assert len(found["target"]["files"]) == 3


def _at(clock: str, said: str) -> str:
    return f"2026-11-20 {clock},000 INFO worker.py:1 -- fine\n{said}"


def test_earliest_of_several_logs_has_the_first_cause(here: Doctor, tmp_path: Path) -> None:
    files = _at("10:00:09", traceback("OSError: [Errno 24] Too many open files"))
    disk = _at("10:00:01", traceback("OSError: [Errno 28] No space left on device"))
    logs = [written(tmp_path, "a.log", files), written(tmp_path, "b.log", disk)]
    found = json.loads(here("logs", *logs, "--format", "json", cwd=tmp_path).stdout)
    assert [result["code"] for result in found["results"]] == ["HOST106", "HOST103"]
    own = written(tmp_path, "c.log", _at("09:59:59", traceback("KeyError: 'answer'", place="/home/u/r.py")))
    found = json.loads(here("logs", *logs, own, "--format", "json", cwd=tmp_path).stdout)
    assert [(result["code"], result["fault"]) for result in found["results"]] == [("LOG161", "code")]
    assert (found["verdict"], found["first_error"]["words"]) == ("failures", "KeyError: 'answer'")
    assert [error["code"] for error in found["also"]] == ["HOST106", "HOST103"]
    late = written(tmp_path, "c.log", _at("10:30:00", traceback("KeyError: 'answer'", place="/home/u/r.py")))
    found = json.loads(here("logs", *logs, late, "--format", "json", cwd=tmp_path).stdout)
    assert [result["code"] for result in found["results"]] == ["HOST106", "HOST103"]


def test_standard_input_is_read(here: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(LCUDA.encode())))
    assert "CUDA105" in here("logs", "-", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("name", "content", "words", "code"),
    [
        ("no.log", None, "no such file", ExitCode.WRONG_USAGE),
        ("core.log", b"\0\1\2\3" * 4000, "it is not text", ExitCode.WRONG_USAGE),
        ("empty", "", "no log in this folder", ExitCode.WRONG_USAGE),
    ],
)
def test_unreadable_input_is_one_sentence(
    here: Doctor, tmp_path: Path, name: str, content: str | bytes | None, words: str, code: ExitCode
) -> None:
    if isinstance(content, bytes):
        written(tmp_path, name, content)
    elif content is not None:
        (tmp_path / name).mkdir()
    done = here("logs", name, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1)
    assert words in done.stderr


@pytest.mark.slow
def test_readable_part_of_a_truncated_gzip_counts(here: Doctor, tmp_path: Path) -> None:
    noise = "".join(f"{random.Random(at).random()}\n" for at in range(5000))
    packed = gzip.compress((LCUDA + noise).encode())
    done = here("logs", written(tmp_path, "run.log.gz", packed[: len(packed) * 2 // 3]), cwd=tmp_path)
    assert done.stdout.startswith("FIRST CAUSE  CUDA105")
    assert "could not be read to its end" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("said", ["", "OSError: [Errno 24] Too many open files\n"])
def test_truncated_log_is_not_reported_as_fine(here: Doctor, tmp_path: Path, said: str) -> None:
    noise = "".join(f"{random.Random(at).random()}\n" for at in range(5000))
    packed = gzip.compress((noise + said + noise).encode())
    written(tmp_path, "run.log.gz", packed[: len(packed) // 3])
    done = here("logs", "run.log.gz", cwd=tmp_path)
    assert done.returncode == 3
    assert "but not all of run.log.gz could be read" in " ".join(done.stdout.split())
    written(tmp_path, "whole.log", f"INFO fine\n{said}")
    assert here("logs", "whole.log", cwd=tmp_path).returncode == bool(said)


def test_empty_log_is_not_reported_as_fine(
    here: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, "run.log", "")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    for name, shown in (("run.log", "run.log"), ("-", "stdin")):
        done = here("logs", name, cwd=tmp_path)
        assert done.returncode == 3
        assert done.stdout.startswith(f"NOT DETERMINED  nothing was read: {shown} is empty\n")
    written(tmp_path, "other.log", "INFO fine\n")
    assert here("logs", "run.log", "other.log", cwd=tmp_path).returncode == 0


def test_line_with_the_address_is_shown_with_the_failure() -> None:
    said = "[2026-11-20 10:00:00,000 E 1 1] gcs_rpc_client.h:179: Failed to connect to GCS at address 10.0.0.1:6379 within 5 seconds."
    raised = traceback("ray.exceptions.RpcError: Timed out while waiting for GCS to become available.")
    (cause,) = read(list(log_lines(f"{said}\n{raised}")), "run.log").causes
    assert cause.lines[-1] == said
    assert "waiting for GCS" in cause.lines[-2]


@pytest.mark.slow
@pytest.mark.parametrize(("said", "code"), [("torch.OutOfMemoryError", 3), ("fine", 0)])
def test_endless_line_is_fine_only_without_an_error(
    here: Doctor, tmp_path: Path, said: str, code: int
) -> None:
    written(tmp_path, "run.log", f"{'step 1 ' * 400_000}{said}\n")
    assert here("logs", "run.log", cwd=tmp_path).returncode == code


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_of_powershell_is_read(tmp_path: Path, encoding: str) -> None:
    path = written(tmp_path, "run.log", LCUDA.encode(encoding))
    with opened(Source("run.log", path)) as content:
        assert any("-lcuda" in line.text for line in excerpt(content).lines)


def test_only_files_of_a_folder_are_read_and_circular_links_end(here: Doctor, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    written(logs, "run.log", LCUDA)
    os.mkfifo(logs / "pipe.log")
    (logs / "round.log").symlink_to("round.log")
    (logs / "again").symlink_to(logs)
    assert [Path(source.name).name for source in sources_of([str(logs)])] == ["run.log"]
    assert "CUDA105" in here("logs", "logs", cwd=tmp_path).stdout
    assert "no such file" in here("logs", "logs/round.log", cwd=tmp_path).stderr


def test_largest_and_ray_logs_of_very_many_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_MOST", 2)
    for name, text in (("worker-1.err", "a"), ("worker-2.err", "abc"), ("raylet.out", "")):
        written(tmp_path, name, text)
    notes: list[str] = []
    assert [Path(source.name).name for source in sources_of([str(tmp_path)], notes.append)] == [
        "worker-2.err",
        "raylet.out",
    ]
    assert notes == [f"{tmp_path} holds 3 logs; the 1 smallest were not read"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("zstd") is None, reason="there is no program zstd here")
def test_readable_part_of_a_truncated_zstd_counts(tmp_path: Path) -> None:
    noise = "".join(f"{random.Random(at).random()}\n" for at in range(20_000))
    packed = subprocess.run(
        ["zstd", "-cq"], input=(LCUDA + noise).encode(), capture_output=True, check=True
    ).stdout
    with opened(
        Source("run.log.zst", written(tmp_path, "run.log.zst", packed[: len(packed) // 2]))
    ) as content:
        found = excerpt(content)
    assert found.cut_off
    assert any("-lcuda" in line.text for line in found.lines)


def test_file_named_twice_is_read_once(tmp_path: Path) -> None:
    path = written(tmp_path, "run.log", LCUDA)
    assert len(sources_of([str(path), str(tmp_path), str(tmp_path / "." / "run.log")])) == 1


def test_escapes_and_secrets_do_not_reach_the_terminal(here: Doctor, tmp_path: Path) -> None:
    error = "\x1b]0;gotcha\x07\x1b[2J/usr/bin/ld: cannot find -lcuda \x9b31m HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123456789\n"
    done = here("logs", written(tmp_path, "run.log", error), cwd=tmp_path)
    assert "CUDA105" in done.stdout
    assert not {"\x1b", "\x07", "\x9b"} & set(done.stdout)
    assert "hf_abc" not in done.stdout


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("login https://u:pw@h/x", "login https://***@h/x"),
        ("wandb_api_key=0123456789abcdef rest", "wandb_api_key=*** rest"),
        ("{'api_key': '0123456789abcdef'}", "{'api_key': '***'}"),
        ("KeyError: 'limit_images'", "KeyError: 'limit_images'"),
        ("full_key: data.seed_of_all", "full_key: data.seed_of_all"),
        ("max_num_batched_tokens=123456", "max_num_batched_tokens=123456"),
    ],
)
def test_secrets_are_masked(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_target_options_require_verify(here: Doctor, tmp_path: Path) -> None:
    done = here("logs", written(tmp_path, "a.log", NOISE), "--verl", tmp_path, cwd=tmp_path)
    assert (done.returncode, "--verify" in done.stderr) == (2, True)


@pytest.mark.slow
def test_verify_runs_the_related_rules(here: Doctor, tmp_path: Path) -> None:
    log = written(tmp_path, "a.log", traceback("OSError: [Errno 24] Too many open files"))
    found = json.loads(here("logs", log, "--verify", "--format", "json", cwd=tmp_path).stdout)
    assert found["results"][0]["reason"]


@pytest.mark.slow
def test_log_fault_has_a_page_and_rules_that_may_confirm_it(here: Doctor, tmp_path: Path) -> None:
    log = written(
        tmp_path, "a.log", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    found = json.loads(here("logs", log, "--format", "json", cwd=tmp_path).stdout)
    finding = found["results"][0]["findings"][0]
    assert (found["results"][0]["code"], finding["fix"]) == ("LOG110", None)
    assert finding["confirm"].startswith("verl-doctor check --select CUDA141,")
    page = here("explain", "log110", cwd=tmp_path).stdout
    assert page.startswith("# LOG110: ")
    assert "* CUDA141: " in page
    assert "CUDA out of memory. Tried to allocate" in page
    assert "LOG110\terror\tlogs\t" in here("rules", cwd=tmp_path).stdout
    assert "explain LOG for those of that family" in here("explain", "LOG999", cwd=tmp_path).stderr


def test_rule_describes_how_its_fault_appears_in_logs(here: Doctor, tmp_path: Path) -> None:
    page = here("explain", "CUDA105", cwd=tmp_path).stdout
    assert "`cannot find -lcuda`" in page.partition("## In logs")[2]
    assert "(less than 20) GB" in here("explain", "HOST106", cwd=tmp_path).stdout


def test_each_confirmed_finding_has_one_line() -> None:
    """Code, place and the first step; with -v, all of the finding."""
    reading = read(excerpt(io.BytesIO(b"RuntimeError: CUDA error: out of memory\n").read).lines, "a.log")
    code = reading.causes[0].signature.code if reading.causes and reading.causes[0].signature else ""
    findings = tuple(
        Confirmation(
            "CUDA141",
            f"GPU {index} has {index}.0 GiB free, " + "of which much is needed, " * 9,
            f"/proc/{index}",
            f"end process {index}; or wait",
        )
        for index in range(6)
    )
    answer = Answer(reading, ("a.log",), 9, confirmed={code: findings})
    lines = [line.plain for line in render.text_lines(answer, 100)]
    begin = lines.index("  on this machine:")
    assert lines[begin + 1 : begin + 6] == [
        *(f"    CUDA141 /proc/{index}: end process {index}" for index in range(4)),
        "    and 2 more (-v)",
    ]
    in_full = "\n".join(line.plain for line in render.text_lines(answer, 100, verbose=True))
    assert in_full.count("GiB free") == in_full.count("; or wait") == 6
    assert "more (-v)" not in in_full


@pytest.mark.parametrize(
    ("arguments", "target"),
    [
        ((), "LAUNCH_SCRIPT --select CFG101"),
        (("--python", "/e/bin/python"), "LAUNCH_SCRIPT --select CFG101 --python /e/bin/python"),
        (("--verl", "/v", "/job/run.sh"), "--select CFG101 --verl /v /job/run.sh"),
    ],
)
def test_next_commands_name_the_launch_script_once(arguments: tuple[str, ...], target: str) -> None:
    text = b"Could not override 'trainer.nodes'.\nKey 'nodes' is not in struct\n"
    reading = read(excerpt(io.BytesIO(text).read).lines, "a.log")
    fixes = {"CFG101": ("script-word", "safe")}
    check, fix, _ = next_steps(Answer(reading, ("a.log",), len(text), fixes=fixes, arguments=arguments))
    assert check.startswith(f"verl-doctor check {target}  #")
    assert fix.startswith(f"verl-doctor fix {target}  #")


@pytest.mark.slow
def test_verify_accepts_the_launch_script(here: Doctor, tmp_path: Path) -> None:
    log = written(tmp_path, "a.log", "Could not override 'trainer.nodes'.\nKey 'nodes' is not in struct\n")
    tree = written(tmp_path, "verl/__init__.py", "").parent
    written(
        tmp_path,
        "verl/trainer/main_ppo.py",
        'import hydra\n@hydra.main(config_path="config", config_name="ppo_trainer")\ndef main(config): ...\n',
    )
    written(tmp_path, "verl/trainer/config/ppo_trainer.yaml", "trainer:\n  nnodes: 1\n")
    script = written(tmp_path, "run.sh", "python3 -m verl.trainer.main_ppo trainer.nodes=2\n")
    said = here("logs", log, "--verify", "--script", script, "--verl", tree, "--format", "json", cwd=tmp_path)
    result = json.loads(said.stdout)["results"][0]
    assert result["code"] == "CFG101"
    assert "trainer.nodes" in result["reason"]
    assert "LAUNCH_SCRIPT" in result["findings"][0]["confirm"]
    text = here("logs", log, "--verify", "--script", script, "--verl", tree, cwd=tmp_path).stdout
    assert any(line.startswith(f"    CFG101 {script}:1: ") for line in text.split("\n")), text


# The excerpt


def test_line_is_found_across_blocks_with_its_number() -> None:
    padding = "step:1 fine\n" * 200_000  # more than two blocks
    kept = said(padding + "ValueError: no\n" + padding)
    assert (200_001, "ValueError: no") in kept
    assert len(kept) < 3000


def test_traceback_interleaved_with_other_output_is_kept_whole() -> None:
    own = spoken(traceback("ValueError: no"), "(W pid=1) ")
    mixed = "\n".join(f"{line}\n(W pid=2) step:7 fine" for line in own.splitlines())
    assert [text for _, text in said("x\n" * 50_000 + mixed + "\n" + "x\n" * 50_000) if "_build" in text]


def test_error_message_is_kept_with_its_continuation_lines() -> None:
    padding = "step:1 fine\n" * 50_000
    kept = [
        text
        for _, text in said(
            f"{padding}it failed:\nx.so: undefined symbol: _Z3abc\nLast error:\na\nb\nc\n{padding}"
        )
    ]
    assert {"x.so: undefined symbol: _Z3abc", "a", "b"} <= set(kept)
    assert "c" not in kept


def test_repeated_lines_hide_nothing_and_are_not_kept() -> None:
    chatter = "".join(f"request {at} failed, error {at % 7}\n" for at in range(10_000))
    kept = said(chatter + "OSError: [Errno 24] Too many open files\n" + chatter)
    assert any("Too many open" in text for _, text in kept)
    assert len(kept) < 2000


def test_log_full_of_errors_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs_excerpt, "_FIRST", 200)
    monkeypatch.setattr(logs_excerpt, "_LAST", 100)
    words = random.Random(3)
    flood = "".join(f"error {''.join(words.choices('abcdefghij', k=12))}\n" for _ in range(2000))
    found = excerpt(io.BytesIO(flood.encode()).read)
    assert found.left_out > 0
    assert 300 <= len(found.lines) < 2000


@pytest.mark.slow
def test_endless_line_is_cut_around_the_relevant_part() -> None:
    found = said(b"x" * 5_000_000 + b" OSError: [Errno 24] Too many open files " + b"y" * 1000)
    assert any("Too many open files" in text for _, text in found)
    assert max(len(text) for _, text in found) < 5000


@pytest.mark.parametrize(
    ("line", "process", "level", "text"),
    [
        ("[rank3]: ValueError: no", "rank3", "", "ValueError: no"),
        ("[default0]:ValueError: no", "default0", "", "ValueError: no"),
        ("3: ValueError: no", "rank 3", "", "ValueError: no"),
        ("[1,2]<stderr>:ValueError: no", "rank 2", "", "ValueError: no"),
        ("worker-1  | ValueError: no", "worker-1", "", "ValueError: no"),
        ("2026-11-20T10:00:00.123Z ValueError: no", "", "", "ValueError: no"),
        ("(raylet, ip=10.0.0.1) no", "raylet", "", "no"),
        ("ERROR 02-10 19:35:51 engine.py:389] ValueError: no", "", "ERROR", "ValueError: no"),
        (
            "[rank1]:[E1120 10:00:00.123 ProcessGroupNCCL.cpp:629] [Rank 1] no",
            "rank1",
            "ERROR",
            "[Rank 1] no",
        ),
        ("[2026-03-12 11:50:36] (W pid=7) no", "W pid=7", "", "no"),
        ("WARNING:2026-11-20 10:00:00,000:no", "", "WARNING", "no"),
        ("2026-11-20 10:00:00,000 - WARNING - transfer_queue.x - no", "", "WARNING", "no"),
        ("/venv/x.py:60: UserWarning: no", "", "WARNING", "/venv/x.py:60: UserWarning: no"),
        ("n1:47:48 [0] NCCL INFO no", "", "INFO", "no"),
        ("(VllmWorker rank=0 pid=9) no", "VllmWorker rank=0 pid=9", "", "no"),
        ("(ActorWorker(infer-0) pid=9, ) no", "ActorWorker(infer-0) pid=9", "", "no"),
        ("(pid=9) no", "pid=9", "", "no"),
        ("[2026-11-20 10:00:00,000][verl.x][WARNING] - no", "", "WARNING", "no"),
        ("2026-11-20 10:00:00 (W pid=7) ERROR 11-20 10:00:00 [core.py:7] no", "W pid=7", "ERROR", "no"),
        (
            "(task-1, pid=2150) (EngineCore_0 pid=3) ERROR 11-20 10:00:00 [core.py:7] no",
            "EngineCore_0 pid=3",
            "ERROR",
            "no",
        ),
        ("[36m(W pid=7)[0m no", "W pid=7", "", "no"),
        ("^[[36m(W pid=7)^[[0m no", "W pid=7", "", "no"),
        (r"\u001b[36m(W pid=7)\u001b[0m no", "W pid=7", "", "no"),
        ("Nov 20 10:00:00 node7 vllm[8727]: (EngineCore pid=8) no", "EngineCore pid=8", "", "no"),
        ("2026-11-20T10:00:00.123456789Z stderr F (W pid=7) no", "W pid=7", "", "no"),
        ("[2026-11-20 10:00:00 TP1] no", "TP1", "", "no"),
        (
            "[155] n1:47:48 [3] misc/x.cc:1 NCCL WARN no",
            "rank 155",
            "",
            "n1:47:48 [3] misc/x.cc:1 NCCL WARN no",
        ),
        ('{"filename": "worker.out", "message": "(W pid=7) no"}', "W pid=7", "", "no"),
        ('{"a": 1} no', "", "", '{"a": 1} no'),
        ("> (W pid=7) no", "W pid=7", "", "no"),
    ],
)
def test_process_is_read_from_labels_of_all_kinds(line: str, process: str, level: str, text: str) -> None:
    (one,) = log_lines(line)
    assert (one.process, one.level, one.text) == (process, level, text)


@pytest.mark.parametrize(
    "unit",
    [
        "(a" * 2,
        "a-",
        "aa",
        'File "',
        "[rank1]:",
        "ray::",
        "1: ",
        "2026-11-20 10:00:00 ",
        "x.y.",
        "cannot find ",
        "lib.so",
        "Error: *",
    ],
)
def test_hostile_lines_are_read_in_linear_time(unit: str) -> None:
    """Each would take hours with a backtracking pattern. Processor seconds are measured, not time."""
    raw = f"Traceback (most recent call last):\n{unit * 2000}\nValueError: {unit * 2000}\n".encode() * 2
    began = time.process_time()
    read(excerpt(io.BytesIO(raw).read).lines, "x")
    assert time.process_time() - began < 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_arbitrary_bytes_are_read_without_a_crash(seed: int) -> None:
    chance = random.Random(seed)
    raw = bytearray((LCUDA + told_by("KeyError: 'a'", RAY)).encode())
    for _ in range(60):
        at = chance.randrange(len(raw))
        raw[at : at + chance.randrange(9)] = chance.randbytes(chance.randrange(9))
    for text in (
        bytes(raw),
        chance.randbytes(20_000),
        b"\n".join(chance.sample(bytes(raw).split(b"\n"), 20)),
    ):
        read(excerpt(io.BytesIO(text).read).lines, "x")


@pytest.mark.parametrize("begin", [b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xff\xfe", b""])
def test_fake_archive_is_skipped_or_read(tmp_path: Path, begin: bytes) -> None:
    path = written(tmp_path, "run.log", begin + random.Random(1).randbytes(3000))
    try:
        with opened(Source("run.log", path)) as content:
            excerpt(content)
    except UnreadableError as error:
        assert str(error)  # noqa: PT017


@pytest.mark.parametrize(
    "text",
    [
        '[[signature]]\ntitle = "x"\npatterns = ["y"]\nkind = "often"',
        '[[signature]]\ntitle = "x"\npatterns = ["y"]',
        '[[signature]]\ntitle = "x"\npatterns = ["y"]\ncode = "A101"\nsound = 1',
        '[[signature]]\ntitle = "x"\ncode = "A101"',
        '[[signature]]\ntitle = "x"\ncode = "A101"\npatterns = ["{>3}"]',
        '[[signature]]\ntitle = "x"\ncode = "A101"\npatterns = ["a {>3} b {>3}"]',
        '[[signature]]\ntitle = "x"\ncode = "A101"\nkind = "weak"\npatterns = ["y"]\nleads_to = ["A102"]',
    ],
)
def test_invalid_signature_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"x\.toml: x"):
        list(signatures_in(text, "x.toml"))


@pytest.mark.parametrize(
    ("text", "speaks"),
    [
        ("took 61.5 s", True),
        ("took 7 s", False),
        ("took 7 s, took 80 s", True),
        ("took 80 minutes", False),
        ("took ", False),
        ("took 1e99 s", False),
    ],
)
def test_quantifiers_in_patterns_are_bounded(text: str, *, speaks: bool) -> None:
    (one,) = signatures_in('[[signature]]\ntitle = "x"\ncode = "A101"\npatterns = ["took {>60} s"]', "x.toml")
    assert one.matches([text]) is speaks

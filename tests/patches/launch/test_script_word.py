"""Proposals of rules are written into the launch script, which then has no findings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from verl_doctor.checks.configuration.batch_sizes_do_not_fit import _EVERY, batch_sizes_do_not_fit
from verl_doctor.checks.configuration.config_key_appended_twice import config_key_appended_twice
from verl_doctor.checks.configuration.config_key_unknown import config_key_unknown
from verl_doctor.checks.configuration.config_value_of_wrong_type import config_value_of_wrong_type
from verl_doctor.checks.configuration.launch_script_refused_by_bash import launch_script_refused_by_bash
from verl_doctor.checks.configuration.override_not_understood import override_not_understood
from verl_doctor.checks.configuration.overrides_cut_off import overrides_cut_off
from verl_doctor.checks.shared.configuration import TREE
from verl_doctor.checks.shared.corrections import variable
from verl_doctor.patches.launch.every_word_passed import every_word_passed
from verl_doctor.patches.launch.joined_lines import joined_lines
from verl_doctor.patches.launch.plain_blanks import plain_blanks
from verl_doctor.patches.launch.script_module import script_module
from verl_doctor.patches.launch.script_word import script_word
from verl_doctor.patches.launch.script_word_changed import script_word_changed
from verl_doctor.patches.launch.unix_line_ends import unix_line_ends
from verl_doctor.patches.launch.word_quoted import word_quoted
from verl_doctor.toolkit.change import Change, Refusal, ReplaceFile
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, with_overrides
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch, ScriptError
from verl_doctor.toolkit.collectors.launch.launch_collector import launch
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Check, Evidence, Finding, Location, Subject
from verl_doctor.toolkit.target import Target

START = "python3 -m verl.trainer.main_ppo \\\n  trainer.nnodes=1 \\\n"
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
FIXES = {fix.id: fix for fix in (script_word, script_word_changed)}
FACTS = {
    batch_sizes_do_not_fit: (_EVERY, Unknown("not read")),
    config_value_of_wrong_type: (Unknown("not read"), Unknown("not read")),
}


def look(path: Path, script: str, check: Check) -> tuple[Launch, list[Finding]]:
    path.write_text(script)
    read = launch.collect(Target(Path("/p"), "--python", files=(path,)), Machine(environ={}))
    assert isinstance(read, Launch)
    assert read.command
    tree = Configuration("/verl/main_ppo.py", "/verl/config", "ppo_trainer", before=TREE, verl="0.6.1")
    there = with_overrides(tree, read.command.words)
    if check is overrides_cut_off:
        return read, list(check.judge(read))
    more = (read,) if check is override_not_understood else FACTS.get(check, ())
    return read, list(check.judge(there, *more))


def plan(path: Path, script: str, check: Check) -> tuple[str, list[Change] | Refusal]:
    read, findings = look(path, script, check)
    finding = findings[0]
    assert finding.fix
    done = FIXES[finding.fix].plan(finding, launch=read, sources=SourceFiles(), marker=Marker())
    return FIXES[finding.fix].safety, done


@pytest.mark.parametrize(
    ("check", "safety", "old", "new"),
    [
        (config_key_unknown, "safe", "trainer.n_gpu_per_node=8", "trainer.n_gpus_per_node=8"),
        (config_key_unknown, "safe", '"data.train_batch_sise=$B"', '"data.train_batch_size=$B"'),
        (config_key_unknown, "safe", "data.max_prompt_len='9'", "data.max_prompt_length='9'"),
        (config_key_unknown, "unsafe", "trainer.nothing=1", None),
        (config_key_unknown, "unsafe", "n_gpus_per_node=4", "trainer.n_gpus_per_node=4"),
        (config_key_appended_twice, "safe", "'+trainer.nnodes=2'", "'trainer.nnodes=2'"),
        (override_not_understood, "safe", "trainer.logger=[console, wandb]", "trainer.logger='[console, wandb]'"),
        (override_not_understood, "safe", "trainer.total_epochs = 2", "trainer.total_epochs=2"),
        (override_not_understood, "safe", "--trainer.total_epochs 2", "trainer.total_epochs=2"),
        (override_not_understood, "safe", "--trainer.total_epochs=2", "trainer.total_epochs=2"),
        (override_not_understood, "safe", "trainer.total_epochs =2", "trainer.total_epochs=2"),
        (override_not_understood, "safe", "trainer.logger='[console'", "trainer.logger='[console]'"),
        (override_not_understood, "safe", "data.train_files=/a/lr=1/x", "data.train_files='\"/a/lr=1/x\"'"),
        (override_not_understood, "safe", "~trainer.mine", None),
        (override_not_understood, "safe", "trainer.logger=[console,]", "trainer.logger=[console]"),
        (override_not_understood, "safe", "trainer.experiment_name=\"today's\"", """trainer.experiment_name='"today'"'"'s"'"""),
        (config_value_of_wrong_type, "unsafe", f"{ACTOR}.fsdp_config=bf16", None),
        (config_value_of_wrong_type, "safe", "data.train_batch_size=1e3", "data.train_batch_size=1000"),
        (config_value_of_wrong_type, "safe", f"{ROLLOUT}.enforce_eager='yes'", f"{ROLLOUT}.enforce_eager='True'"),
        (config_value_of_wrong_type, "safe", f"{ACTOR}.optim.lr='\"1,5e-6\"'", f"{ACTOR}.optim.lr='1.5e-06'"),
        (override_not_understood, "safe", f"{ACTOR}.optim.lr=1,5e-6", f"{ACTOR}.optim.lr=1.5e-6"),
        (config_value_of_wrong_type, "safe", "critic.enable=None", "critic.enable=null"),
        (config_value_of_wrong_type, "safe", f"{ROLLOUT}.gpu_memory_utilization=90%", f"{ROLLOUT}.gpu_memory_utilization=0.9"),
        (config_value_of_wrong_type, "unsafe", f"{ROLLOUT}.n=two", None),
        (config_value_of_wrong_type, "unsafe", f"{ACTOR}.use_kl_loss=perhaps", None),
        (config_value_of_wrong_type, "unsafe", "trainer.n_gpus_per_node=auto", "trainer.n_gpus_per_node=1"),
        (batch_sizes_do_not_fit, "unsafe", f"data.train_batch_size=300 {ACTOR}.ppo_mini_batch_size=256", f"data.train_batch_size=296 {ACTOR}.ppo_mini_batch_size=256"),
        (batch_sizes_do_not_fit, "safe", f"{ACTOR}.ppo_micro_batch_size_per_gpu=5", f"{ACTOR}.ppo_micro_batch_size_per_gpu=4"),
        (batch_sizes_do_not_fit, "safe", f"{ROLLOUT}.tensor_model_parallel_size=3", f"{ROLLOUT}.tensor_model_parallel_size=4"),
        (batch_sizes_do_not_fit, "unsafe", "data.train_batch_size=128", f"data.train_batch_size=128 {ACTOR}.ppo_mini_batch_size=128"),
        (batch_sizes_do_not_fit, "safe", f"{ACTOR}.ppo_micro_batch_size=32", None),
    ],
)  # fmt: skip
def test_repaired_script_has_no_findings(
    tmp_path: Path, check: Check, safety: str, old: str, new: str | None
) -> None:
    found, changes = plan(tmp_path / "run.sh", f"{START}  {old} \\\n  trainer.total_epochs=3\n", check)
    assert isinstance(changes, list), changes
    (change,) = changes
    assert isinstance(change, ReplaceFile)
    assert found == safety
    after = change.after.decode()
    rows = [row for row in after.split("\n") if "# verl-doctor" not in row]
    wanted = f"{START}" + (f"  {new} \\\n" if new else "") + "  trainer.total_epochs=3\n"
    if new and new.startswith("data.train_batch_size=128"):  # additions are at the end
        wanted = f"{START}  data.train_batch_size=128 \\\n  trainer.total_epochs=3 \\\n  {ACTOR}.ppo_mini_batch_size=128\n"
    assert "\n".join(rows) == wanted
    assert look(tmp_path / "after.sh", after, check)[1] == []
    if found == "unsafe":
        assert change.why


@pytest.mark.parametrize(
    ("before", "call", "old", "new"),
    [
        ("A=(\n  trainer.n_gpu_per_node=8\n)\n", '"${A[@]}"', "n_gpu_per_node", "n_gpus_per_node"),
        ("N=8\nA=(\n  trainer.n_gpu_per_node=$N\n)\n", '"${A[@]}"', "n_gpu_per_node", "n_gpus_per_node"),
        ("A=()\nA+=('trainer.n_gpu_per_node=8')\n", "${A[@]}", "n_gpu_per_node", "n_gpus_per_node"),
    ],
)
def test_array_element_is_edited_where_the_array_is_written(
    tmp_path: Path, before: str, call: str, old: str, new: str
) -> None:
    script = f"{before}python3 -m verl.trainer.main_ppo trainer.nnodes=1 {call}\n"
    _, changes = plan(tmp_path / "run.sh", script, config_key_unknown)
    assert isinstance(changes, list), changes
    (change,) = changes
    assert isinstance(change, ReplaceFile)
    rows = [row for row in change.after.decode().split("\n") if "# verl-doctor" not in row]
    assert "\n".join(rows) == script.replace(old, new)


def test_function_argument_is_edited_at_its_call(tmp_path: Path) -> None:
    script = 'f() {\n  python3 -m verl.trainer.main_ppo trainer.nnodes=1 "$@"\n}\nf trainer.n_gpu_per_node=8 trainer.total_epochs=2\n'
    _, changes = plan(tmp_path / "run.sh", script, config_key_unknown)
    assert isinstance(changes, list), changes
    (change,) = changes
    assert isinstance(change, ReplaceFile)
    assert "\nf trainer.n_gpus_per_node=8 trainer.total_epochs=2\n" in change.after.decode()


@pytest.mark.parametrize(
    ("before", "call"),
    [
        ('A="trainer.nnodes=1 trainer.n_gpu_per_node=8"\n', "$A"),
        ("A=(trainer.nnodes=1 trainer.n_gpu_per_node=8)\n", "${A[*]/x/y}"),
        ("set -- trainer.nnodes=1 trainer.n_gpu_per_node=8\n", '"$@"'),
        ("CMD='true trainer.n_gpu_per_node=8'\n", "${CMD#true}"),
    ],
)
def test_one_of_several_words_is_edited_where_they_are_set(tmp_path: Path, before: str, call: str) -> None:
    script = f"{before}python3 -m verl.trainer.main_ppo {call}\n"
    _, changes = plan(tmp_path / "run.sh", script, config_key_unknown)
    assert isinstance(changes, list), changes
    (change,) = changes
    assert isinstance(change, ReplaceFile)
    right = script.replace("n_gpu_per_node", "n_gpus_per_node")
    assert change.after.decode() == f"# {before.strip()}  {Marker().comment('CFG101')}\n{right}"


@pytest.mark.parametrize(
    ("script", "after"),
    [
        ("python3 -m old.main a.b=1\n", "python3 -m new.main a.b=1\n"),
        (
            "torchrun --nnodes=1 \\\n  -m old.main \\\n  a.b=1\n",
            "torchrun --nnodes=1 \\\n  -m new.main \\\n  a.b=1\n",
        ),
        ('CMD="python3 -m old.main"\n$CMD a.b=1\n', 'CMD="python3 -m new.main"\n$CMD a.b=1\n'),
        ("echo old.main\npython3 \\\n  -m old.main\n", ""),
    ],
)
def test_module_is_replaced_where_it_is_written(tmp_path: Path, script: str, after: str) -> None:
    path = tmp_path / "run.sh"
    path.write_text(script)
    subject = Subject("module", "old.main", "new.main")
    line = 2 if script.startswith(("CMD", "echo")) else 1
    found = Finding("", Evidence("", "", ""), location=Location(str(path), line), subject=subject)
    changes = script_module.plan(found, sources=SourceFiles(), marker=Marker())
    if not after:
        assert isinstance(changes, Refusal)
        return
    assert isinstance(changes, list), changes
    (change,) = changes
    assert isinstance(change, ReplaceFile)
    rows = change.after.decode().splitlines(keepends=True)
    assert "".join(row for row in rows if Marker().comment("PY113") not in row) == after


@pytest.mark.parametrize(
    ("head", "refused"),
    [
        ("# Generated by sweep.py: do not edit", True),
        ("# This file was generated from job.yaml", True),
        ("# AUTO-GENERATED", True),
        ("# tokens generated per second are logged", False),
        ("echo 'generated by nobody'", False),
    ],
)
def test_generated_script_is_refused(tmp_path: Path, head: str, refused: bool) -> None:
    script = f"#!/bin/bash\n{head}\n{START}  trainer.n_gpu_per_node=8\n"
    _, changes = plan(tmp_path / "run.sh", script, config_key_unknown)
    assert isinstance(changes, Refusal) is refused
    if isinstance(changes, Refusal):
        assert changes.reason.startswith(f"{tmp_path}/run.sh is a generated file")


def test_plan_shows_the_arithmetic(tmp_path: Path) -> None:
    _, changes = plan(
        tmp_path / "run.sh", f"{START}  {ACTOR}.ppo_micro_batch_size_per_gpu=5\n", batch_sizes_do_not_fit
    )
    assert isinstance(changes, list)
    assert changes[0].why == "32 = 8 * 4"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "script",
    [
        "if $X; then EXTRA='trainer.n_gpu_per_node=8'; fi\npython3 -m verl.trainer.main_ppo trainer.nnodes=1 $EXTRA\n",
        "A='trainer.n_gpu_per_node=8'\nB='trainer.n_gpu_per_node=8'\npython3 -m verl.trainer.main_ppo trainer.nnodes=1 $A\n",
        "cat > args <<EOF\ntrainer.n_gpu_per_node=8\nEOF\npython3 -m verl.trainer.main_ppo trainer.nnodes=1 $(cat args)\n",
    ],
)
def test_conditional_or_repeated_word_is_refused(tmp_path: Path, script: str) -> None:
    read, findings = look(tmp_path / "run.sh", script, config_key_unknown)
    for finding in findings:
        if finding.fix:
            done = FIXES[finding.fix].plan(finding, launch=read, sources=SourceFiles(), marker=Marker())
            assert isinstance(done, Refusal)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("train a.b=1 \\ \n  c.d=2\n", "# train a.b=1 \\  {mark}\ntrain a.b=1 \\\n  c.d=2\n"),
        (
            "train \\\n  a.b=1 \\  # short\n  e.f=3\n",
            "# a.b=1 \\  # short  {mark}\ntrain \\\n  a.b=1 \\\n  e.f=3\n",
        ),
        (
            "train \\\n  a.b=1 \\\n  # c.d=2 \\\n  e.f=3\n",
            "  # c.d=2 \\  {mark}\ntrain \\\n  a.b=1 \\\n  e.f=3\n",
        ),
        (
            "train \\\n  a.b='[\"c#\"]' # short \\\n  e.f=3\n",
            "# a.b='[\"c#\"]' # short \\  {mark}\ntrain \\\n  a.b='[\"c#\"]' \\\n  e.f=3\n",
        ),
    ],
)
def test_split_command_is_joined(tmp_path: Path, before: str, after: str) -> None:
    path = tmp_path / "run.sh"
    path.write_text(before)
    finding = Finding("cut", Evidence("x"), Location(str(path), 1))
    (change,) = joined_lines.plan(finding, sources=SourceFiles(), marker=Marker())  # type: ignore[misc]
    assert isinstance(change, ReplaceFile)
    assert change.after.decode() == after.format(mark=Marker().comment("CFG104"))


def test_text_that_a_script_writes_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    note = "cat > note <<'EOF'\ntrain \\ \n  a.b=1 \\\n  # why\n  c.d=2\nEOF\n"
    path.write_text(f"{note}train \\ \n  a.b=1\n")
    finding = Finding("cut", Evidence("x"), Location(str(path), 8))
    (change,) = joined_lines.plan(finding, sources=SourceFiles(), marker=Marker())  # type: ignore[misc]
    assert isinstance(change, ReplaceFile)
    assert change.after.decode() == f"{note}# train \\  {Marker().comment('CFG104')}\ntrain \\\n  a.b=1\n"


def test_backslash_that_is_missing_is_added(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    lines = "  trainer.nnodes=1\n  trainer.total_epochs=2 \\\n  trainer.total_training_steps=3\n"
    start = "set -x\npython3 -m verl.trainer.main_ppo \\\n"
    path.write_text(f"{start}{lines}")
    read = launch.collect(Target(Path("/p"), "--python", files=(path,)), Machine(environ={}))
    assert isinstance(read, Launch)
    (finding,) = overrides_cut_off.judge(read)
    (change,) = joined_lines.plan(finding, sources=SourceFiles(), marker=Marker())  # type: ignore[misc]
    assert isinstance(change, ReplaceFile)
    assert change.after.decode() == (
        f"set -x\n# trainer.nnodes=1  {Marker().comment('CFG104')}\n"
        f"python3 -m verl.trainer.main_ppo \\\n{lines.replace('nnodes=1', 'nnodes=1 ' + chr(92))}"
    )


@pytest.mark.parametrize(
    "script",
    [
        "train a.b=1 > log\n  c.d=2 \\\n  e.f=3\n",
        "train a.b=1 # one\n  c.d=2 \\\n  e.f=3\n",
        "train a.b=1\nc_d=2 \\\n  e.f=3\n",
        "train a.b=1\n\n  c.d=2\n",
        "export A=1\n  c.d=2 \\\n  e.f=3\n",
        "if true; then\n  train\nfi\n  c.d=2 \\\n  e.f=3\n",
        "for i in 1; do\n  train\ndone\n  c.d=2 \\\n  e.f=3\n",
        "cat <<'X'\ntrain a.b=1\n  c.d=2\nX\n",
    ],
)
def test_line_that_may_end_there_gets_no_backslash(tmp_path: Path, script: str) -> None:
    path = tmp_path / "run.sh"
    path.write_text(script)
    line = next(number for number, row in enumerate(script.split("\n"), 1) if "=2" in row)
    finding = Finding("cut", Evidence("x"), Location(str(path), line))
    assert isinstance(joined_lines.plan(finding, sources=SourceFiles(), marker=Marker()), Refusal)


@pytest.mark.parametrize(
    ("before", "word", "after"),
    [
        ('OUT="my runs/a"', "trainer.default_local_dir=$OUT", '"trainer.default_local_dir=$OUT"'),
        ('OUT="my runs"', "trainer.default_local_dir=${OUT}/a", '"trainer.default_local_dir=${OUT}/a"'),
        ("", "+optim.more={eps:1e-8,foreach:False}", "'+optim.more={eps:1e-8,foreach:False}'"),
    ],
)
def test_word_that_the_shell_splits_is_quoted(tmp_path: Path, before: str, word: str, after: str) -> None:
    path = tmp_path / "run.sh"
    script = f"{before}\n{START}  {word} \\\n  trainer.total_epochs=3\n"
    read, findings = look(path, script, override_not_understood)
    (finding,) = findings
    assert finding.fix == "word-quoted"
    (change,) = word_quoted.plan(finding, launch=read, sources=SourceFiles(), marker=Marker())  # type: ignore[misc]
    assert isinstance(change, ReplaceFile)
    assert f"\n  {after} \\\n" in change.after.decode()
    read, findings = look(tmp_path / "after.sh", change.after.decode(), override_not_understood)
    assert not any(finding.fix == "word-quoted" for finding in findings)


@pytest.mark.parametrize(
    ("before", "word"),
    [
        ('EXTRA="a.b=1 c.d=2"', "$EXTRA"),
        ('EXTRA="1 trainer.nnodes=2"', "trainer.total_epochs=$EXTRA"),
        ("", "trainer.{nnodes,total_epochs}=1"),
    ],
)
def test_words_that_are_meant_to_be_several_are_left(tmp_path: Path, before: str, word: str) -> None:
    _, findings = look(tmp_path / "run.sh", f"{before}\n{START}  {word}\n", override_not_understood)
    assert not any(finding.fix == "word-quoted" for finding in findings)


@pytest.mark.parametrize("script", ["train a.b=1 \\ \necho done\n", "train a.b=1 \\\\ \n  c.d=2\n"])
def test_line_before_another_command_is_not_joined(tmp_path: Path, script: str) -> None:
    path = tmp_path / "run.sh"
    path.write_text(script)
    finding = Finding("cut", Evidence("x"), Location(str(path), 1))
    assert isinstance(joined_lines.plan(finding, sources=SourceFiles(), marker=Marker()), Refusal)


ARRAY = "ARGS=(trainer.nnodes=1 'trainer.project_name=a b')\n"


@pytest.mark.parametrize(
    ("before", "written", "meant", "check"),
    [
        (ARRAY, "$ARGS", '"${ARGS[@]}"', overrides_cut_off),
        (ARRAY, '"${ARGS}"', '"${ARGS[@]}"', overrides_cut_off),
        (ARRAY, '"${ARGS[*]}"', '"${ARGS[@]}"', override_not_understood),
        ("set -- trainer.nnodes=1 'trainer.project_name=a b'\n", '"$*"', '"$@"', override_not_understood),
        ("MORE='trainer.nnodes=1 +a.b=c'\n", '"$MORE"', "$MORE", override_not_understood),
        ("MORE='trainer.nnodes=1 +a.b=c'\n", '"${MORE}"', "${MORE}", override_not_understood),
    ],
)
def test_every_word_of_an_array_is_passed(
    tmp_path: Path, before: str, written: str, meant: str, check: Check
) -> None:
    path = tmp_path / "run.sh"
    script = f"{before}python3 -m verl.trainer.main_ppo {written} trainer.total_epochs=3\n"
    _, (finding,) = look(path, script, check)
    assert (finding.fix, finding.location) == ("every-word-passed", Location(str(path), 2))
    (change,) = every_word_passed.plan(finding, sources=SourceFiles(), marker=Marker())  # type: ignore[misc]
    assert isinstance(change, ReplaceFile)
    assert f"verl-doctor: {'CFG104' if check is overrides_cut_off else 'CFG103'}\n" in change.after.decode()
    read, findings = look(path, change.after.decode(), check)
    assert change.after.decode().splitlines()[-1] == script.splitlines()[-1].replace(written, meant)
    assert findings == []
    assert read.command
    second = "+a.b=c" if "MORE" in before else "trainer.project_name=a b"
    assert [word.text for word in read.command.words][:2] == ["trainer.nnodes=1", second]


@pytest.mark.parametrize("written", ["'trainer.nnodes=1 data.seed=2'", '"$MORE"'])
def test_several_settings_in_one_word_are_not_made_one_value(tmp_path: Path, written: str) -> None:
    script = f"MORE='trainer.nnodes=1 data.seed=2 x'\npython3 -m verl.trainer.main_ppo {written}\n"
    _, (finding,) = look(tmp_path / "run.sh", script, override_not_understood)
    assert (finding.fix, finding.remedy) == (None, "write each as a word of its own")


def test_array_of_another_program_is_left_alone(tmp_path: Path) -> None:
    script = (
        "ARGS=(a.b=1 c.d=2)\npython3 prepare.py $ARGS\npython3 -m verl.trainer.main_ppo trainer.nnodes=1\n"
    )
    assert look(tmp_path / "run.sh", script, overrides_cut_off)[1] == []


@pytest.mark.parametrize(
    "written", ['"${ARGS[@]}"', "${ARGS[@]}", "${ARGS[*]}", "${ARGS[0]}", "data.x=$ARGS"]
)
def test_array_that_is_passed_as_it_should_be_is_left_alone(tmp_path: Path, written: str) -> None:
    script = f"ARGS=(trainer.nnodes=1 data.y=2)\npython3 -m verl.trainer.main_ppo {written}\n"
    for check in (overrides_cut_off, override_not_understood):
        _, findings = look(tmp_path / "run.sh", script, check)
        assert not any(finding.fix == "every-word-passed" for finding in findings)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (
            "  trainer.total_epochs=1\u00a0trainer.save_freq=-1 \\\n",
            "  trainer.total_epochs=1 trainer.save_freq=-1 \\\n",
        ),
        ("\u00a0 trainer.total_epochs=1 \\\n", "  trainer.total_epochs=1 \\\n"),
        ("  trainer.total_epochs=1\u00a0\\\n", "  trainer.total_epochs=1 \\\n"),
        ("  trainer.total_epochs=1 \\\u00a0\n", "  trainer.total_epochs=1 \\\n"),
    ],
)
def test_non_breaking_space_becomes_a_blank(tmp_path: Path, written: str, meant: str) -> None:
    path = tmp_path / "run.sh"
    _, findings = look(path, f"{START}{written}  trainer.test_freq=2\n", override_not_understood)
    finding = findings[0]
    assert (finding.fix, finding.location) == ("plain-blanks", Location(str(path), 3))
    (change,) = plain_blanks.plan(finding, sources=SourceFiles(), marker=Marker())  # type: ignore[misc]
    assert isinstance(change, ReplaceFile)
    kept = f"# {written.strip()}  {Marker().comment('CFG103')}\n"
    assert change.after.decode() == f"{kept}{START}{meant}  trainer.test_freq=2\n"
    read, findings = look(path, change.after.decode(), override_not_understood)
    assert (findings, read.lost) == ([], ())


def test_non_breaking_space_in_a_text_stays(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    script = f"{START}  trainer.nnodes=1\u00a0 'trainer.project_name=a\u00a0b'\n"
    path.write_text(script)
    finding = Finding("", Evidence(""), Location(str(path), 3))
    assert isinstance(plain_blanks.plan(finding, sources=SourceFiles(), marker=Marker()), Refusal)


def test_only_windows_line_endings_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_bytes(b"a\r\nb\rc\r\n")
    finding = Finding("ends", Evidence("x"), Location(str(path)))
    (change,) = unix_line_ends.plan(finding, sources=SourceFiles())  # type: ignore[misc]
    assert isinstance(change, ReplaceFile)
    assert change.after == b"a\nb\rc\n"


def test_unknown_group_option_becomes_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    read, _ = look(
        path, f"{START}  model_engine=fsdp \\\n  trainer.total_epochs=3\n", override_not_understood
    )
    assert read.command
    tree = Configuration("/verl/main_ppo.py", "/verl/config", "ppo_trainer", refused="none", verl="0.9.1")
    there = replace(
        with_overrides(tree, read.command.words),
        missing_option="model_engine/fsdp",
        options=("dp", "megatron", "veomni"),
    )
    (finding,) = override_not_understood.judge(there, read)
    assert finding.location == Location(str(path), 3)
    assert finding.fix == "script-word-changed"
    (change,) = script_word_changed.plan(finding, launch=read, sources=SourceFiles(), marker=Marker())  # type: ignore[misc]
    assert isinstance(change, ReplaceFile)
    assert "  model_engine=dp \\\n" in change.after.decode()


def test_folder_of_verl_is_searched_for_what_the_own_file_builds_on(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    read, _ = look(path, f"{START}  trainer.total_epochs=3\n", override_not_understood)
    assert read.command
    tree = Configuration("/verl/main_ppo.py", "/mine", "mine", refused="none", missing_option="ppo_trainer")
    there = replace(with_overrides(tree, read.command.words), found_with="pkg://verl.trainer.config")
    (finding,) = override_not_understood.judge(there, read)
    assert finding.fix == "script-word"
    (change,) = script_word.plan(finding, launch=read, sources=SourceFiles(), marker=Marker())  # type: ignore[misc]
    assert isinstance(change, ReplaceFile)
    assert "hydra.searchpath=[pkg://verl.trainer.config]" in change.after.decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "python3 -m torch.distributed.launch --nproc_per_node=2 -m verl.trainer.sft_trainer trainer.nnodes=1\n",
            "python3 -m torch.distributed.run --nproc_per_node=2 -m verl.trainer.sft_trainer trainer.nnodes=1\n",
        ),
        (
            "torchrun -m verl.trainer.sft_trainer --nproc_per_node=2 trainer.nnodes=1\n",
            "torchrun --nproc_per_node=2 -m verl.trainer.sft_trainer trainer.nnodes=1\n",
        ),
    ],
)
def test_launcher_gets_what_is_its_own(tmp_path: Path, before: str, after: str) -> None:
    safety, changes = plan(tmp_path / "run.sh", before, override_not_understood)
    assert (safety, _code(changes)) == ("safe", after)
    assert look(tmp_path / "after.sh", after, override_not_understood)[1] == []


@pytest.mark.parametrize(
    ("before", "after", "safety"),
    [
        ("torchrun --nnodes=1 python3 -m verl.x a.b=1\n", "torchrun --nnodes=1 -m verl.x a.b=1\n", "safe"),
        (
            "deepspeed --num_gpus=2 \\\n  --module verl.x a.b=1\n",
            "torchrun --nproc_per_node=2 \\\n  -m verl.x a.b=1\n",
            "unsafe",
        ),
        (
            "deepspeed --num_gpus 2 --module verl.x a.b=1\n",
            "torchrun --nproc_per_node 2 -m verl.x a.b=1\n",
            "unsafe",
        ),
        ("deepspeed --include=localhost:0 --module verl.x a.b=1\n", "", ""),
    ],
)
def test_launcher_that_cannot_start_the_program_is_replaced(
    tmp_path: Path, before: str, after: str, safety: str
) -> None:
    path = tmp_path / "run.sh"
    path.write_text(before)
    read = launch.collect(Target(Path("/p"), "--python", files=(path,)), Machine(environ={}))
    assert isinstance(read, Launch)
    stopped = replace(read, stopped=(ScriptError(str(path), 1, "no such program"),))
    (finding,) = launch_script_refused_by_bash.judge(stopped)
    assert bool(after) == bool(finding.fix)
    if finding.fix:
        changes = FIXES[finding.fix].plan(finding, launch=read, sources=SourceFiles(), marker=Marker())
        assert (FIXES[finding.fix].safety, _code(changes)) == (safety, after)


@pytest.mark.parametrize(
    ("line", "new", "after"),
    [
        ("export MODE=offlin", "offline", "export MODE=offline"),
        ("export MODE='offlin'", "offline", "export MODE='offline'"),
        ("export MODE=offlin", None, ""),
    ],
)
def test_line_that_sets_a_variable_is_edited_in_its_quotes(
    tmp_path: Path, line: str, new: str | None, after: str
) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"{line}\n{START}  trainer.total_epochs=1\n")
    read = launch.collect(Target(Path("/p"), "--python", files=(path,)), Machine(environ={}))
    correction = variable("MODE", "offlin", Location(str(path), 1), new, effect="the mode is another")
    found = Finding("", Evidence(""), correction=replace(correction, code="ENV118") if correction else None)
    changes = script_word_changed.plan(found, launch=read, sources=SourceFiles(), marker=Marker())
    assert isinstance(changes, list), changes
    assert changes[0].why == "the mode is another"  # type: ignore[union-attr]
    rest = "".join(f"{row}\n" for row in _code(changes).splitlines() if row not in (":", ""))
    assert rest == f"{after}\n{START}  trainer.total_epochs=1\n".lstrip("\n")


def _code(changes: list[Change] | Refusal) -> str:
    """Return the new content without what was commented out, and without the mark at the end of a line."""
    assert isinstance(changes, list), changes
    (change,) = changes
    assert isinstance(change, ReplaceFile)
    rows = (row.partition("  # verl-doctor")[0] for row in change.after.decode().splitlines())
    return "".join(f"{row}\n" for row in rows if not row.startswith("# "))

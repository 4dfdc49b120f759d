"""Variants of scripts in common styles: only the intended words change."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.trying import cases

from verl_doctor.toolkit.collectors.launch.files import read_launch
from verl_doctor.toolkit.collectors.launch.launch import Launch, load_text
from verl_doctor.toolkit.commands.script.text import Order, drafts, same_but_for
from verl_doctor.toolkit.commands.script.value import as_written
from verl_doctor.toolkit.commands.script.variant import ValueChange
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.python.edit import CannotEdit
from verl_doctor.toolkit.target import Target

HEAD, COMMENT = "variant", "# verl-doctor: DEBUG"
CALL = "python3 -m verl.trainer.main_ppo"
CHANGES = (ValueChange("data.train_batch_size", 4, ""), ValueChange("trainer.logger", ["console"], ""))


def read(path: Path, text: str) -> Launch:
    target = Target(python=Path("/python"), chosen_by="--python", files=(path,))
    machine = Machine(environ={}, cwd=path.parent)
    found = read_launch(target, machine, lambda name: text if name == str(path) else load_text(name))
    assert isinstance(found, Launch)
    return found


def values(launch: Launch) -> list[str | None]:
    assert launch.command
    return [word.text for word in launch.command.words]


def written(
    text: str, path: Path = Path("/home/me/run.sh"), *, changes: tuple[ValueChange, ...] = CHANGES
) -> str:
    """The first draft; the script must otherwise be unchanged."""
    launch = read(path, text)
    assert launch.command
    orders = [Order(command, changes) for command in (launch.command, *launch.others)]
    draft = next(drafts(text, str(path), orders, COMMENT, HEAD, last=False))
    assert same_but_for(text, draft)
    return draft.text


def lines(text: str) -> list[str]:
    """Without the comments of the doctor."""
    mine = [
        line for line in text.splitlines() if not (line.lstrip().startswith("#") and line.endswith(COMMENT))
    ]
    return [line.removesuffix(f"  {COMMENT}") for line in mine]


def test_value_is_changed_in_place_and_the_old_line_kept() -> None:
    text = f'#!/bin/bash\nset -x\n{CALL} \\\n    data.train_batch_size=$BS \\\n    trainer.logger=\'["console","wandb"]\' \\\n    trainer.nnodes=1 $@\n'
    assert written(text) == (
        "#!/bin/bash\n# variant  # verl-doctor: DEBUG\nset -x\n"
        '# data.train_batch_size=$BS \\  # verl-doctor: DEBUG\n# trainer.logger=\'["console","wandb"]\' \\  # verl-doctor: DEBUG\n'
        f"{CALL} \\\n    data.train_batch_size=4 \\\n    trainer.logger='[\"console\"]' \\\n    trainer.nnodes=1 $@\n"
    )


CONSTRUCTS = {
    "behind a pipe": (f"{CALL} a.b=1 $@ 2>&1 | tee log\n", f"{CALL} a.b=1 {{}} $@ 2>&1 | tee log"),
    "before the script's arguments": (f'{CALL} a.b=1 "${{@}}" > log\n', f'{CALL} a.b=1 {{}} "${{@}}" > log'),
    "no overrides at all": (f"{CALL}\n", f"{CALL} {{}}"),
    "in the background": (f"nohup {CALL} a.b=1 > log 2>&1 &\n", f"nohup {CALL} a.b=1 {{}} > log 2>&1 &"),
    "a condition": (f"if true; then {CALL} a.b=1; fi\n", f"if true; then {CALL} a.b=1 {{}}; fi"),
    "after another command": (f"cd / && {CALL} a.b=1 # so\n", f"cd / && {CALL} a.b=1 {{}} # so"),
    "handed to ray": (
        f"ray job submit --no-wait -- {CALL} a.b=1\n",
        f"ray job submit --no-wait -- {CALL} a.b=1 {{}}",
    ),
    "torchrun": (
        "torchrun --nproc_per_node=2 -m verl.trainer.main_ppo a.b=1\n",
        "torchrun --nproc_per_node=2 -m verl.trainer.main_ppo a.b=1 {}",
    ),
    "srun": (f"srun -N 2 {CALL} a.b=1\n", f"srun -N 2 {CALL} a.b=1 {{}}"),
    "a command in a variable": (f"CMD='{CALL} a.b=1'\n$CMD\n", f"CMD='{CALL} a.b=1'\n$CMD {{}}"),
    "no new line at the end": (f"{CALL} a.b=1", f"{CALL} a.b=1 {{}}"),
    "a loop": (f"for i in 1 2; do\n  {CALL} a.b=$i\ndone\n", f"for i in 1 2; do\n  {CALL} a.b=$i {{}}\ndone"),
    "a function": (
        f'train() {{\n  {CALL} "$@"\n}}\ntrain a.b=1\n',
        f'train() {{\n  {CALL} {{}} "$@"\n}}\ntrain a.b=1',
    ),
}
ADDED = "data.train_batch_size=4 trainer.logger='[\"console\"]'"


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_missing_setting_is_added_to_the_command(name: str) -> None:
    before, after = CONSTRUCTS[name]
    assert "\n".join(lines(written(before))) == after.replace("{}", ADDED)


def test_added_lines_match_the_formatting_of_the_others() -> None:
    assert lines(written(f'{CALL} \\\n\ta.b=1 \\\n\t"$@"\n')) == [
        f"{CALL} \\",
        "\ta.b=1 \\",
        "\tdata.train_batch_size=4 \\",
        "\ttrainer.logger='[\"console\"]' \\",
        '\t"$@"',
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"data.train_batch_size=$BS"', '"data.train_batch_size=4"'),
        ("'data.train_batch_size=8'", "'data.train_batch_size=4'"),
        ("data.train_batch_size=${BS:-1024}", "data.train_batch_size=4"),
        ("data.train_batch_size=$((2 * 8))", "data.train_batch_size=4"),
        ("+data.train_batch_size=8", "+data.train_batch_size=4"),
        ("++data.train_batch_size=8", "++data.train_batch_size=4"),
        (
            "data.train_batch_size=8 data.train_batch_size=16",
            "data.train_batch_size=8 data.train_batch_size=16 data.train_batch_size=4",
        ),
    ],
)
def test_only_the_value_is_changed(before: str, after: str) -> None:
    assert lines(written(f"{CALL} {before}\n", changes=CHANGES[:1])) == [f"{CALL} {after}"]


def test_array_keeps_comments_on_separate_lines() -> None:
    text = f'ARGS=(\n  # sizes\n  data.train_batch_size=8\n  trainer.nnodes=1\n)\n{CALL} "${{ARGS[@]}}"\n'
    assert written(text, changes=CHANGES[:1]).splitlines()[1:] == [
        "ARGS=(",
        "  # sizes",
        "  # data.train_batch_size=8  # verl-doctor: DEBUG",
        "  data.train_batch_size=4  # verl-doctor: DEBUG",
        "  trainer.nnodes=1",
        ")",
        f'{CALL} "${{ARGS[@]}}"',
    ]


def test_conditional_setting_is_overridden_at_the_end() -> None:
    text = f'ARGS=(a.b=1)\nif [ "$UNKNOWN" = x ]; then\n  ARGS+=(data.train_batch_size=8)\nfi\n{CALL} "${{ARGS[@]}}"\n'
    assert lines(written(text, changes=CHANGES[:1]))[-1] == f'{CALL} "${{ARGS[@]}}" data.train_batch_size=4'


def test_sourced_file_is_kept_and_overridden(tmp_path: Path) -> None:
    (tmp_path / "common.sh").write_text("ARGS=(data.train_batch_size=8 trainer.nnodes=1)\n")
    text = f'source common.sh\n{CALL} "${{ARGS[@]}}"\n'
    assert (
        lines(written(text, tmp_path / "run.sh", changes=CHANGES[:1]))[-1]
        == f'{CALL} "${{ARGS[@]}}" data.train_batch_size=4'
    )


def test_called_script_receives_the_values_as_arguments(tmp_path: Path) -> None:
    (tmp_path / "base.sh").write_text(f'{CALL} data.train_batch_size=8 "$@"\n')
    path, text = tmp_path / "run.sh", 'echo begin\nbash base.sh trainer.nnodes=2 "$@" | tee log\n'
    command = read(path, text).command
    assert command
    found = drafts(text, str(path), [Order(command, CHANGES[:1])], COMMENT, HEAD, last=False)
    variants = [values(read(path, draft.text)) for draft in islice(found, 2)]
    assert ["data.train_batch_size=8", "trainer.nnodes=2", "data.train_batch_size=4"] in variants


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            f'BS=8; srun bash -c "cd /x && {CALL} data.train_batch_size=$BS" > log',
            f'BS=8; srun bash -c "cd /x && {CALL} data.train_batch_size=4 trainer.logger=\\[console\\]" > log',
        ),
        (
            f"ssh_like=1; bash -c '{CALL} \"trainer.logger=[console,wandb]\" data.train_batch_size=8'",
            f"ssh_like=1; bash -c '{CALL} trainer.logger=\\[console\\] data.train_batch_size=4'",
        ),
        (
            f"bash -c '\n  cd /x\n  {CALL} \\\n    data.train_batch_size=8 \\\n    a.b=1\n'",
            f"bash -c '\n  cd /x\n  {CALL} \\\n    data.train_batch_size=4 \\\n    a.b=1 \\\n    trainer.logger=\\[console\\]\n'",
        ),
    ],
)
def test_command_in_a_string_for_another_shell_is_edited(before: str, after: str) -> None:
    found = written(before + "\n")
    assert "\n".join(lines(found)) == after
    assert values(read(Path("/home/me/run.sh"), found))[-1] in (
        "data.train_batch_size=4",
        "trainer.logger=[console]",
    )


def test_composed_command_is_refused() -> None:
    text = f'A="{CALL}"\nB="$A a.b=1"\neval "$B; echo done"\n'
    path = Path("/home/me/run.sh")
    command = read(path, text).command
    assert command
    with pytest.raises(CannotEdit, match=r"run\.sh:3"):
        list(drafts(text, str(path), [Order(command, CHANGES)], COMMENT, HEAD, last=False))


def test_here_document_is_left_unchanged() -> None:
    text = f"cat > c.yaml <<EOF\n{CALL} data.train_batch_size=8\nEOF\n{CALL} data.train_batch_size=8\n"
    assert lines(written(text, changes=CHANGES[:1])) == [
        "cat > c.yaml <<EOF",
        f"{CALL} data.train_batch_size=8",
        "EOF",
        f"{CALL} data.train_batch_size=4",
    ]


def test_each_of_several_commands_is_changed() -> None:
    text = f'if [ -n "$UNKNOWN" ]; then\n  {CALL} data.train_batch_size=8\nelse\n  {CALL} data.train_batch_size=16\nfi\n'
    assert sum("data.train_batch_size=4" in line for line in lines(written(text, changes=CHANGES[:1]))) == 2


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "True"),
        (-1, "-1"),
        (0.4, "0.4"),
        ("/a/b-c.parquet", "/a/b-c.parquet"),
        ("/a b", '"/a b"'),
        (["console"], '["console"]'),
    ],
)
def test_values_in_hydra_syntax(value: object, text: str) -> None:
    assert as_written(value) == text


INTO = {
    "a.b=1": "a.b=1",
    "data.train_batch_size=8": "data.train_batch_size=4",
    "'data.train_batch_size=$x'": "'data.train_batch_size=4'",
    "trainer.logger=[console,wandb]": "trainer.logger='[\"console\"]'",
    "x.y=$HOME": "x.y=$HOME",
    '"z.z=$((1+2))"': '"z.z=$((1+2))"',
    "'t.t=é'": "'t.t=é'",
}
BEFORE = (
    "",
    "set -x\n",
    "# é\n",
    "A=(1 2)\nexport B=$C\n",
    "cat <<E\nx\nE\n",
    "if true; then\n  :\nfi\n",
    "f() { echo; }\n",
)
BEHIND = ("", " $@", ' "$@" 2>&1 | tee log', " > log", " &", "  # so", " && echo done")
words = st.lists(
    st.sampled_from(list(INTO)), max_size=6, unique_by=lambda word: word.strip("'").partition("=")[0]
)


@pytest.mark.slow
@settings(deadline=None, max_examples=cases(37))
@given(
    st.sampled_from(BEFORE), words, st.sampled_from([" ", " \\\n    ", "  \\\n\t"]), st.sampled_from(BEHIND)
)
def test_generated_scripts_are_otherwise_unchanged(
    before: str, given_words: list[str], gap: str, behind: str
) -> None:
    text = f"{before}{gap.join([CALL, *given_words])}{behind}\n"
    added = [
        f"{change.key}={shlex.quote(as_written(change.value))}"
        for change in CHANGES
        if not any(change.key in word for word in given_words)
    ]
    alone = f" {gap.lstrip()}" if given_words else " "
    expected = f"{before}{gap.join([CALL, *(INTO[word] for word in given_words)])}{''.join(alone + word for word in added)}{behind}\n"
    after = written(text)
    assert lines(after) == expected.splitlines()
    path = Path("/home/me/run.sh")
    touched = tuple(change.key for change in CHANGES)
    old, new = (
        [word for word in values(read(path, content)) if not str(word).startswith(touched)]
        for content in (text, after)
    )
    assert old == new


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
def test_bash_passes_the_intended_words(tmp_path: Path) -> None:
    """One run of bash over all constructs, with a python3 that prints its arguments."""
    script = [
        "python3() { printf '<%s>' \"$@\"; echo; }",
        'nohup() { "$@"; }',
        'srun() { shift 2; "$@"; }',
        "cd() { :; }",
        "set -- last.word=1",
    ]
    names = [
        name
        for name in CONSTRUCTS
        if name not in ("handed to ray", "torchrun", "in the background", "a function")
    ]
    script += [f"( {written(CONSTRUCTS[name][0])}\n)" for name in names]
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    passed = [line for line in done.stdout.splitlines() if line.startswith("<-m>")]
    assert len(passed) >= len(names) - 2, done.stderr
    assert all('<data.train_batch_size=4><trainer.logger=["console"]>' in line for line in passed)

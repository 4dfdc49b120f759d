"""Habits of interactive shells and of other programs in launch scripts. Bash gives the expected words where it runs the script."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.launch.launch_collector import launch
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target

SYSTEM = "/usr/bin:/bin"
START = "python3 -m verl.trainer.main_ppo"
GPU = "/dev/nvidiactl"


def read(folder: Path, script: str, *, has_gpus: bool = False, bin_folder: str = "/env/bin") -> Launch:
    path = folder / "run.sh"
    path.write_text(script)
    root = folder / "machine"
    if has_gpus:
        (root / GPU[1:]).parent.mkdir(parents=True, exist_ok=True)
        (root / GPU[1:]).touch()
    target = Target(Path(bin_folder, "python"), "--python", files=(path,))
    found = launch.collect(target, Machine(environ={"PATH": SYSTEM}, cwd=folder, root=root))
    assert isinstance(found, Launch)
    return found


def two_tables(folder: Path) -> None:
    (folder / "data").mkdir()
    for name in ("a", "b"):
        (folder / "data" / f"{name}.parquet").touch()


def words_of(found: Launch) -> list[str | None]:
    assert found.command
    return [word.text for word in found.command.words]


def by_bash(folder: Path, script: str) -> list[str]:
    """Return the words that bash passes to the trainer."""
    program = folder / "bin" / "python3"
    program.parent.mkdir(exist_ok=True)
    program.write_text('#!/bin/bash\nshift 2\nprintf "%s\\n" "$@" > words.txt\n')
    program.chmod(0o755)
    environ = {**os.environ, "PATH": f"{program.parent}:{SYSTEM}", "LC_ALL": "C"}
    subprocess.run(["bash", "-c", script], cwd=folder, env=environ, check=False, capture_output=True)
    return (folder / "words.txt").read_text().splitlines()


@pytest.mark.parametrize(
    "script",
    [
        f'FILES=""\nfor f in data/*.parquet; do FILES+="$f,"; done\n{START} "a=[$FILES]" b=1',
        f'FILES=""\nfor f in data/*.parquet; do FILES+="$f,"; done\n{START} "a=[${{FILES%,}}]" b=1',
        f'A=()\nfor k in x y; do A+=("$k=1"); done\n{START} "${{A[@]}}"',
        f'F=$(ls shards/part-*.parquet 2>/dev/null | paste -sd, -)\n{START} "a=[$F]" b=1',
        f"N=$(ls none-* 2>/dev/null | wc -l)\n{START} n=$N b=1",
        f'A=(skip "a=$UNSET_HERE" b=1)\n{START} "${{A[@]:2}}" c=1',
    ],
)
def test_words_equal_those_of_bash(tmp_path: Path, script: str) -> None:
    two_tables(tmp_path)
    assert words_of(read(tmp_path, script)) == by_bash(tmp_path, script)


@pytest.mark.parametrize(
    "script",
    [
        f'A=(skip "$UNSET_HERE" $MORE_HERE b=1)\n{START} "${{A[@]:1}}" c=1',
        f'touch part-1\nF=$(ls part-* | paste -sd, -)\n{START} "a=$F" c=1',
        f'F=$(ls part-* | awk "END {{print NR}}")\n{START} "a=$F" c=1',
        f'mkdir -p data && cp x data/c.parquet\nfor f in data/*; do FILES+="$f,"; done\n{START} "a=$FILES" c=1',
    ],
)
def test_words_that_may_be_others_are_unknown(tmp_path: Path, script: str) -> None:
    first, *_ = words_of(read(tmp_path, script))
    assert first is None


GUARD = f'command -v no_such_tool >/dev/null || {{ echo "it is missing"; exit 1; }}\n{START} a=1'
ROUNDS = f'for tool in bash no_such_tool; do\n  if ! command -v "$tool" >/dev/null; then exit 2; fi\ndone\n{START} a=1'
FILES = f'for f in here.txt gone.txt; do\n  [ -f "$f" ] || exit 3\ndone\n{START} a=1'

GONE = "cd: gone: No such file or directory"
FOLDERS = f'for d in one two; do\n  echo "$d"\n  cd gone || exit 1\n  {START} a=$d\ndone'


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (GUARD, "exit 1: no_such_tool is not on the PATH"),
        (ROUNDS, "exit 2: no_such_tool is not on the PATH"),
        (FILES, "exit 3: gone.txt does not exist"),
        (GUARD.replace("no_such_tool", "bash"), ""),
        (f"export PATH=/usr/local/tools/bin:$PATH\n{GUARD}", ""),
        (f"curl -sSL https://example.org/get.sh | bash\n{GUARD}", ""),
        (GUARD.replace("exit 1", "exit 0"), ""),
        (FILES.replace("exit 3", "continue"), ""),
        (FOLDERS, GONE),
        (FOLDERS.replace("|| exit 1", "|| { echo no folder; exit 4; }"), GONE),
        (FOLDERS.replace('echo "$d"', 'cd "$PWD" || exit 5'), GONE),
        (FOLDERS.replace("gone", "."), ""),
        (FOLDERS.replace("|| exit 1", "|| continue"), ""),
        (FOLDERS.replace("gone", '"$d" 2>/dev/null'), ""),
        (FOLDERS.replace("for d", "mkdir -p gone\nfor d"), ""),
        (FOLDERS.replace("one two", '"$@"'), ""),
        (FOLDERS.replace("one two", ""), ""),
        (FOLDERS.replace("one two", "$(ls)"), ""),
        (FOLDERS.replace("for d", 'if [ -n "$UNKNOWN_HERE" ]; then for d').replace("done", "done; fi"), ""),
        (FOLDERS.replace("for d in one two", "while read -r d"), ""),
        (f"touch gone.txt\n{FILES}", ""),
        (f"until [ -f gone.txt ]; do sleep 1; done\n{FILES}", ""),
        (f"until [ -f other.txt ]; do sleep 1; done\n{FILES}", "exit 3: gone.txt does not exist"),
    ],
)
def test_script_that_ends_because_something_is_missing(tmp_path: Path, script: str, message: str) -> None:
    (tmp_path / "here.txt").touch()
    (tmp_path / "one").mkdir()
    found = read(tmp_path, script, has_gpus=True).stopped
    assert [stop.message for stop in found] == ([message] if message else [])


SETUP = "set -e\nsetup() {\n  export A=1\n  %s\n}\nsetup"
STRICT = "set -euo pipefail\n"
ABSENT = "setup: status 1: gone.sh does not exist"


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (SETUP % "[[ -f gone.sh ]] && source gone.sh", ABSENT),
        (SETUP % "[ -f gone.sh ] && . ./gone.sh && echo read", ABSENT),
        (SETUP % "command -v no_such_tool && export B=2", "setup: status 1: no_such_tool is not on the PATH"),
        (SETUP % "[[ $A = 2 ]] && echo two", "setup: status 1"),
        (SETUP % "[[ -f here.txt ]] && cat here.txt", ""),
        (SETUP % "[[ -f gone.sh ]] && source gone.sh || true", ""),
        (SETUP % "[[ ! -f gone.sh ]] && echo none", ""),
        (SETUP % "[[ -f gone.sh ]] && source gone.sh; return 0", ""),
        (SETUP % "if [[ -f gone.sh ]]; then source gone.sh; fi", ""),
        (SETUP % "[[ $UNKNOWN = 2 ]] && echo two", ""),
        (SETUP.replace("set -e", ":") % "[[ -f gone.sh ]] && source gone.sh", ""),
        (f"{SETUP} || echo failed" % "[[ -f gone.sh ]] && source gone.sh", ""),
        (f"touch gone.sh\n{SETUP}" % "[[ -f gone.sh ]] && cat gone.sh", ""),
        ("set -e\n. ./included.sh", ".: status 1: gone.sh does not exist"),
        (". ./included.sh", ""),
        ("set -e\n[[ -f gone.sh ]] && source gone.sh", ""),
        ("set -e\nN=0\n((N++))", "((N++)): status 1"),
        ("set -e\nN=0\nfor d in gone/*; do ((N++)); done", "((N++)): status 1"),
        ("set -e\nN=0\nfor d in a b; do ((N++)); cat $d; done", "((N++)): status 1"),
        ("set -e\nN=1\nfor d in a b; do ((N++)); done", ""),
        ("set -e\nN=1\nfor d in a b; do ((N--)); done", "((N--)): status 1"),
        ("set -e\nN=0\nfor d in a b; do ((++N)); done", ""),
        ("set -e\nN=0\nfor d in a b; do ((N++)) || true; done", ""),
        ("set -e\nN=0\nfor d in $UNKNOWN; do ((N++)); done", ""),
        ("set -e\nN=0\nfor d in a b; do [[ $d = a ]] && ((N++)); done", "((N++)): status 1"),
        ("N=0\n((N++))", ""),
        ("set -e\nlet N=0", "let: status 1"),
        ("set -e\nread -r -d '' NOTES <<'EOF'\nfirst\nEOF", "read: status 1"),
        ("set -e\nread -rd '' NOTES <<< first", "read: status 1"),
        ("set -e\nread -r -d '' NOTES <<'EOF' || true\nfirst\nEOF", ""),
        ("set -e\nread -r NOTES <<< first", ""),
        ("set -e\nread -r -d : NOTES <<< a:b", ""),
        ("read -r -d '' NOTES <<< first", ""),
        ("set -e\nX=$(grep -o thinking here.json)", "grep: nothing matches thinking"),
        ("set -e\nX=$(grep -o answer here.json)", ""),
        ("set -e\nX=$(grep -c 'think.*' here.json)", ""),
        ("set -e\nX=$(grep -i thinking here.json)", ""),
        ("set -e\nX=$(grep thinking here.json || true)", ""),
        (f"{STRICT}mkdir -p saved\nX=$(ls saved | grep step_ | tail -1)", "grep: nothing matches step_"),
        (f"{STRICT}mkdir -p saved\nX=$(ls saved | grep old | tail -1)", ""),
        (f"{STRICT}touch saved/step_1\nX=$(ls saved | grep step_ | tail -1)", ""),
        (f"{STRICT}./prepare\nX=$(ls saved | grep step_ | tail -1)", ""),
        ("set -e\nX=$(ls saved | grep step_ | tail -1)", ""),
    ],
)  # fmt: skip
def test_command_that_fails_in_a_strict_script(tmp_path: Path, head: str, message: str) -> None:
    (tmp_path / "here.txt").touch()
    (tmp_path / "included.sh").write_text("[[ -f gone.sh ]] && source gone.sh\n")
    (tmp_path / "here.json").write_text("{ 'answer': 1 }\n")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "old").touch()
    found = read(tmp_path, f"{head}\n{START} a=1", has_gpus=True).stopped
    assert [stop.message for stop in found] == ([message] if message else [])


ALIAS = "alias launch='torchrun --standalone'\n"


@pytest.mark.parametrize(
    ("head", "stops"),
    [
        (ALIAS, True),
        (f"#!/usr/bin/env bash\nset -x\n{ALIAS}", True),
        (f"set -e\n{ALIAS}", True),
        (f"shopt -s expand_aliases\n{ALIAS}", False),
        (f"#!/bin/sh\n{ALIAS}", False),
        (f"#!/bin/zsh\n{ALIAS}", False),
        (f"#!/bin/bash -i\n{ALIAS}", False),
        (f"set -o posix\n{ALIAS}", False),
        (f"export PATH=$PWD/tools:$PATH\n{ALIAS}", False),
        (ALIAS.replace("launch", "bash"), False),
        (f'launch() {{ torchrun "$@"; }}\n{ALIAS}', False),
        (f"source ~/.aliases\n{ALIAS}", False),
    ],
)
def test_alias_that_bash_does_not_expand(tmp_path: Path, head: str, stops: bool) -> None:
    stopped = read(tmp_path, f"{head}launch -m verl.trainer.sft_trainer a.b=1 c.d=2").stopped
    assert [stop.message.partition(": it")[0] for stop in stopped] == (
        ["launch: command not found"] if stops else []
    )


USAGE = "usage() { echo 'run.sh MODEL'; exit 1; }"
LACKS = "exit 1: the script is started without arguments"


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("if [ $# -lt 2 ]; then echo Usage; exit 1; fi", LACKS),
        ('if [ "$#" -lt 2 ]; then\n  exit 1\nfi\nmodel=$1\nshift 2', LACKS),
        ("if (( $# < 2 )); then exit 1; fi", LACKS),
        ('if [[ -z "$1" ]]; then exit 1; fi', LACKS),
        ('if [ -z "${1:-}" ]; then exit 1; fi', LACKS),
        ("[ $# -ge 1 ] || exit 1", LACKS),
        ("if ! test $# -gt 0; then exit 1; fi", LACKS),
        (f"{USAGE}\n[[ $# -eq 0 ]] && usage", LACKS),
        (f"{USAGE}\n[[ -n ${{1:-}} ]] || {{ usage; }}", LACKS),
        (f"{USAGE.replace('exit', 'return')}\n[[ $# -eq 0 ]] && usage", ""),
        ('[ -z "$1" ] && MODEL=small', ""),
        ("if [ $# -gt 2 ]; then exit 1; fi", ""),
        ("if [ $# -lt 2 ]; then echo Usage; exit 0; fi", ""),
        ("if [ $# -lt 2 ]; then set -- a b; fi", ""),
        ("set -- a b\nif [ $# -lt 2 ]; then exit 1; fi", ""),
        ("f() { if [ $# -lt 2 ]; then exit 1; fi; }\nf a b", ""),
        ("if [ -n $UNKNOWN ]; then\n  if [ $# -lt 2 ]; then exit 1; fi\nfi", ""),
        ("f() { if [ $# -lt 2 ]; then exit 3; fi; }\nf a", "exit 3"),
        ("MODE=b\n[ $MODE = a ] || exit 2", "exit 2"),
    ],
)
def test_script_that_requires_arguments(tmp_path: Path, head: str, message: str) -> None:
    stopped = read(tmp_path, f"{head}\n{START} a=$1").stopped
    assert [stop.message for stop in stopped] == ([message] if message else [])
    assert [stop.lacks_arguments for stop in stopped] == ([message == LACKS] if message else [])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("[ $# -ge 1 ] || exit 1\n  {start}", LACKS),
        ('case "$1" in\n  grpo) shift;;\n  *) echo Usage; exit 1;;\n  esac\n  {start}', LACKS),
        ("LR=\n  while [ $# -gt 0 ]; do\n  LR=$2; shift 2; done\n  [[ -n $LR ]] || exit 1\n  {start}", LACKS),
        ("set -u\n  LR=$1\n  {start}", ""),
        ("{start}\n  [ $# -ge 1 ] || exit 1", ""),
        ("if [ $# -gt 0 ]; then exit 1; fi\n  {start}", ""),
        ("[ -n $UNKNOWN ] || { [ $# -gt 0 ] || exit 1; }\n  {start}", ""),
        ("if [ $# = 0 ]; then exit 0; fi\n  {start}", ""),
        ("MODE=b\n  [ $MODE = a ] || exit 2", "exit 2"),
    ],
)
def test_function_that_gets_the_arguments_of_the_script(tmp_path: Path, body: str, message: str) -> None:
    script = "main() {\n  " + body.replace("{start}", f"{START} a=$1") + '\n}\nmain "$@"'
    stopped = read(tmp_path, script).stopped
    assert [stop.message for stop in stopped] == ([message] if message else [])
    assert [stop.lacks_arguments for stop in stopped] == (["without" in message] if message else [])


def test_function_gets_arguments_that_nobody_named(tmp_path: Path) -> None:
    for script in (f"{START} a=$1", f'main() {{\n  {START} a=$1\n}}\nmain "$@"'):
        assert words_of(read(tmp_path, script)) == [None]
    assert words_of(read(tmp_path, f"main() {{\n  {START} a=$1\n}}\nmain")) == ["a="]


@pytest.mark.parametrize(
    ("header", "conditional"),
    [
        ("#!/bin/bash -a", True),
        ("#!/usr/bin/env -S bash -e -a", True),
        ("#!/bin/bash -ea\n#SBATCH --nodes=1", False),
        ("#!/bin/bash -e", None),
        ("# bash -a", None),
    ],
)
def test_options_in_the_first_line(tmp_path: Path, header: str, conditional: bool | None) -> None:
    """`bash run.sh` does not read them: what they export may be exported, in a batch job certainly."""
    found = read(tmp_path, f"{header}\nNCCL_DEBUG=INFO\n{START} a=1")
    seen = [
        (setting.value, setting.conditional) for setting in found.settings if setting.name == "NCCL_DEBUG"
    ]
    assert seen == ([] if conditional is None else [("INFO", conditional)])


def test_arguments_that_are_named(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"if [ $# -lt 2 ]; then exit 1; fi\n{START} a=$1")
    target = Target(Path("/env/bin/python"), "--python", files=(path,), words=("x", "y"))
    found = launch.collect(target, Machine(environ={"PATH": SYSTEM}, cwd=tmp_path))
    assert isinstance(found, Launch)
    assert not found.stopped
    assert words_of(found) == ["a=x"]


def test_program_that_this_machine_lacks_may_be_where_the_job_runs(tmp_path: Path) -> None:
    assert not read(tmp_path, GUARD).stopped
    assert read(tmp_path, f"{GUARD} trainer.device=cpu").stopped
    assert read(tmp_path, f"{GUARD} trainer.device=cuda ++trainer.device=cpu").stopped
    assert not read(tmp_path, f"{GUARD} trainer.device=cpu trainer.device=cuda").stopped
    assert not read(tmp_path, f"{GUARD} trainer.device=cpu '~trainer.device'").stopped
    assert not read(tmp_path, f"{GUARD} trainer.device=cpu $MORE").stopped
    assert read(tmp_path, f"{GUARD} trainer.device=cpu a=1").stopped
    assert not read(tmp_path, f"{GUARD} trainer.device=cpu trainer.device=$DEVICE").stopped


INSTALLATION = "/usr/no-conda"


def test_installation_that_this_machine_lacks(tmp_path: Path) -> None:
    script = f"set -e\nsource {INSTALLATION}/etc/profile.d/conda.sh\n{START} a=1"
    assert read(tmp_path, script, has_gpus=True).stopped
    assert not read(tmp_path, f"#!/bin/bash\n#SBATCH --nodes=1\n{script}", has_gpus=True).stopped
    assert not read(tmp_path, script.replace("set -e\n", ""), has_gpus=True).stopped
    assert not read(tmp_path, script.replace("/usr/", "/tmp/"), has_gpus=True).stopped


@pytest.mark.parametrize(
    ("head", "stops"),
    [
        ("source ~/.cargo/env", True),
        ("mkdir -p out\ndate\nsource ~/.cargo/env", True),
        ("curl -sSf https://example.com/install.sh | sh -s -- -y\nsource ~/.cargo/env", False),
        ("huggingface-cli download some/model\ncd ~/.cache/hub", False),
        ("./fetch\ncd ~/fetched", False),
        ("curl -s https://example.com/made | sh\nsource ~/made-by-it/bin/activate", False),
        ("apt-get install -y toolset\nsource /usr/toolset/setvars.sh", False),
        ("X=$(curl -s https://example.com/made | sh)\nsource ~/.cargo/env", False),
    ],
)
def test_what_a_program_may_have_installed_is_not_missing(tmp_path: Path, head: str, stops: bool) -> None:
    (tmp_path / "machine/home").mkdir(parents=True)
    script = f"export HOME=/home/me\nset -e\n{head}\n{START} a=1"
    assert bool(read(tmp_path, script, has_gpus=True).stopped) == stops


def test_installation_may_be_where_the_job_runs(tmp_path: Path) -> None:
    script = f"set -e\nsource {INSTALLATION}/etc/profile.d/conda.sh\n{START} a=1"
    assert not read(tmp_path, script).stopped


def test_variable_of_a_refused_division_stays_empty(tmp_path: Path) -> None:
    script = f"N=0\nM=$((8 / N))\n{START} data.train_batch_size=$M a=1"
    assert [word.text for word in read(tmp_path, script).hollow] == ["data.train_batch_size="]
    skipped = f"N=0\nM=$((N && 8 / N))\n{START} data.train_batch_size=$M a=1"
    assert not read(tmp_path, skipped).hollow


@pytest.mark.parametrize(
    ("head", "hollow"),
    [
        ("MODEL = /data/model\n", True),
        ("MODEL =/data/model\n", True),
        ("MODEL= /data/model\n", True),
        ("source ./paths.sh\n", True),
        ("MODEL=/data/model\n", False),
        ("[ $MODEL = /data/model ]\n", True),
        ("test = test\n", True),
        ("export PATH=$PWD/tools:$PATH\nMODEL = /data/model\n", False),
        ("command_not_found_handle() { MODEL=$3; }\nMODEL = /data/model\n", False),
    ],
)
def test_assignment_with_spaces_assigns_nothing(tmp_path: Path, head: str, hollow: bool) -> None:
    (tmp_path / "paths.sh").write_text("MODEL = /data/model\n")
    found = read(tmp_path, f"{head}{START} actor_rollout_ref.model.path=$MODEL a=1")
    assert [word.text for word in found.hollow] == (["actor_rollout_ref.model.path="] if hollow else [])


def test_assignment_with_spaces_ends_a_strict_script(tmp_path: Path) -> None:
    found = read(tmp_path, f"set -e\nMODEL = /data/model\n{START} a=1").stopped
    assert [stop.message for stop in found] == ["MODEL: command not found"]


@pytest.mark.parametrize(
    ("time", "count"),
    [
        ('"$(date)"', 1),
        ("$(date +%Y-%m-%d_%H-%M)", 1),
        ("$(date '+%Y-%m-%d %H:%M')", 2),
        ("$(date -u '+%d %b %Y')", 3),
        ("'$(date)'", 1),
    ],
)
def test_blanks_of_a_date_split_a_word(tmp_path: Path, time: str, count: int) -> None:
    script = f"{START} trainer.experiment_name={time} a=1"
    assert len(words_of(read(tmp_path, script))) == len(by_bash(tmp_path, script)) == count + 1


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("torchrun --nproc_per_node=2 python3 -m verl.trainer.sft_trainer", "torchrun opens python3 as the source of a program"),
        ("torchrun --nproc_per_node=2 /usr/bin/python3 -m verl.trainer.sft_trainer", "torchrun opens /usr/bin/python3 as the source of a program"),
        ("torchrun --no-python --nproc_per_node=2 python3 -m verl.trainer.sft_trainer", ""),
        ("deepspeed --num_gpus=2 --module verl.trainer.sft_trainer", "deepspeed: command not found"),
        ("pip install deepspeed\ndeepspeed --num_gpus=2 --module verl.trainer.sft_trainer", ""),
        ("source /usr/local/env.sh\ndeepspeed --num_gpus=2 --module verl.trainer.sft_trainer", ""),
        ("conda activate verl\ndeepspeed --num_gpus=2 --module verl.trainer.sft_trainer", ""),
        ("torchrun --nproc_per_node 2 verl.trainer.sft_trainer", "python: can't open file verl.trainer.sft_trainer"),
        ("python3 -m torch.distributed.run --nproc_per_node=2 verl.trainer.sft_trainer", "python: can't open file verl.trainer.sft_trainer"),
        ("python3 -u verl.trainer.sft_trainer", "python: can't open file verl.trainer.sft_trainer"),
        ("torchrun \u2013standalone --nproc_per_node=2 -m verl.trainer.sft_trainer", "python: can't open file \u2013standalone"),
        ("torchrun --standalone \u2014nproc_per_node 2 -m verl.trainer.sft_trainer", "python: can't open file \u2014nproc_per_node"),
        ("torchrun --nproc_per_node=2 \u2013m verl.trainer.sft_trainer", "python: can't open file \u2013m"),
        ("python3 \u2013m verl.trainer.sft_trainer", "python: can't open file \u2013m"),
        ("torchrun --nproc_per_node=$UNSET $MORE verl.trainer.sft_trainer", ""),
        ("torchrun --nproc_per_node 2 --rdzv_id verl.first -m verl.trainer.sft_trainer", ""),
        ("touch verl.trainer.sft_trainer\ntorchrun --standalone verl.trainer.sft_trainer", ""),
        ("torchrun --standalone train.sft", ""),
        ("torchrun --no-python --nproc_per_node=2 verl.start -m verl.trainer.sft_trainer", ""),
        ("python3 -m verl.trainer.sft_trainer \u2013standalone", ""),
    ],
)  # fmt: skip
def test_launcher(tmp_path: Path, command: str, message: str) -> None:
    (tmp_path / "train.sft").touch()
    found = read(tmp_path, f"{command} a.b=1 c.d=2").stopped
    assert [stop.message for stop in found] == ([message] if message else [])


def test_launcher_beside_the_interpreter_is_found(tmp_path: Path) -> None:
    program = tmp_path / "env" / "bin" / "deepspeed"
    program.parent.mkdir(parents=True)
    program.touch()
    script = "deepspeed --num_gpus=2 --module verl.trainer.sft_trainer a.b=1 c.d=2"
    assert not read(tmp_path, script, bin_folder=str(program.parent)).stopped


@pytest.mark.parametrize(
    ("head", "stops"), [("", True), ("#SBATCH --nodes=1\n", False), ("module load cuda\n", False)]
)
def test_search_path_of_libraries_that_is_not_set(tmp_path: Path, head: str, stops: bool) -> None:
    script = f"{head}set -u\nexport LD_LIBRARY_PATH=/usr/local/lib:$LD_LIBRARY_PATH\n{START} a=1"
    assert bool(read(tmp_path, script).stopped) == stops


SFT = "-m verl.trainer.sft_trainer a.b=1 c.d=2"


@pytest.mark.parametrize(
    "script",
    [
        f"for t in no_such_tool bash; do [ $t = no_such_tool ] && continue; command -v $t || exit 1; done\n{START} a=1",
        f"look() {{ for f in here.txt gone.txt; do [ -f $f ] && return; [ -f $f ] || exit 1; done; }}\nlook\n{START} a=1",
        f"set -u\nfor g in 0 1; do [ $g = 0 ] && L=$g || L=$L,$g; done\n{START} a=$L",
        f"command -v beside >/dev/null || exit 1\n{START} a=1",
        f"for b in mapfile compgen time if '[[' coproc; do type \"$b\" >/dev/null || exit 1; done\n{START} a=1",
        f"PATH=$PWD/tools:$PATH command -v no_such_tool || exit 1\n{START} a=1",
        f"PATH=$PWD/bin:$PATH deepspeed --num_gpus=2 --module {SFT[3:]}",
        f"deepspeed --num_gpus=2 --module {SFT[3:]} 2>/dev/null || torchrun --nproc_per_node=2 {SFT}",
        f"uv run --with deepspeed deepspeed --num_gpus=2 --module {SFT[3:]}",
        f"set -e\nuntil [ -f conf.sh ]; do sleep 5; done\n. ./conf.sh\n{START} a=1",
        f"set -e\nwhile ! test -d mounted; do :; done\ncd mounted\n{START} a=1",
        f"set -e\nfor i in $(seq 60); do [[ -e mounted/env.sh ]] && break; sleep 1; done\nsource mounted/env.sh\n{START} a=1",
        f'set -e\nwaits() {{ until [ -s "$1" ]; do sleep 1; done; }}\nwaits conf.sh\n. ./conf.sh\n{START} a=1',
    ],
)
def test_script_that_reaches_the_trainer_is_not_stopped(tmp_path: Path, script: str) -> None:
    (tmp_path / "here.txt").touch()
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "beside").touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "deepspeed").touch()
    found = read(tmp_path, script, has_gpus=True, bin_folder=str(tmp_path / "env"))
    assert [stop.message for stop in found.stopped] == []


def test_function_that_the_shell_exports_is_there(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"command -v module || exit 1\n{START} a=1 trainer.device=cpu")
    environ = {"PATH": SYSTEM, "BASH_FUNC_module%%": "() { true; }"}
    target = Target(Path("/env/bin/python"), "--python", files=(path,))
    found = launch.collect(target, Machine(environ=environ, cwd=tmp_path))
    assert isinstance(found, Launch)
    assert not found.stopped


@pytest.mark.parametrize(
    "value",
    [
        "$(no_such_tool -L 2>&1 | wc -l)",
        "$(ls none-* 2>&1 | wc -l)",
        "$(no_such_tool -L | cat - count.txt | head -n1)",
        "$(ls data/[^_]*.parquet | wc -l)",
        "$(ls data/[[:digit:]]*.parquet 2>/dev/null | wc -l)",
        "$(shopt -s nocaseglob; ls data/*.PARQUET 2>/dev/null | wc -l)",
    ],
)
def test_output_that_depends_on_more_is_unknown(tmp_path: Path, value: str) -> None:
    found = read(tmp_path, f"N={value}\n{START} a=$N b=1", has_gpus=True)
    assert words_of(found)[0] in (None, "a=None")


@pytest.mark.parametrize(
    "head",
    [
        "rm -f data/b.parquet\nfor f in data/*.parquet",
        "command rm -f data/b.parquet\nfor f in data/*.parquet",
        "find data -name 'b*' -delete\nfor f in data/*.parquet",
        "for f in data/[^_]*.parquet",
        "shopt -s nullglob\nfor f in none/*.parquet",
        "shopt -s extglob\nfor f in data/@(a|b).parquet",
        "set -f\nfor f in data/*.parquet",
    ],
)
def test_files_of_a_loop_that_may_be_others_are_unknown(tmp_path: Path, head: str) -> None:
    two_tables(tmp_path)
    script = f'F=""\n{head}; do F+="$f,"; done\n{START} "a=[$F]" b=1'
    assert words_of(read(tmp_path, script))[0] is None


def test_division_that_an_inner_expression_avoids(tmp_path: Path) -> None:
    script = f'N=0\nF="N ? 4 / N : 1"\nX=$((F + 0))\n{START} data.train_batch_size=$X a=1'
    assert not read(tmp_path, script).hollow


def test_word_of_a_select_is_chosen_by_somebody(tmp_path: Path) -> None:
    script = f"select x in a b; do LR=$x; done </dev/null\n{START} optim.lr=${{LR:-1e-5}} a=1"
    assert words_of(read(tmp_path, script))[0] is None


def test_pattern_in_a_script_of_a_script(tmp_path: Path) -> None:
    """Nothing is known of the folder in which the inner one runs."""
    inner = f"set -eo pipefail\nLAST=$(ls -d checkpoints/step_* | sort -V | tail -n 1)\n{START} a=1 b=2\n"
    (tmp_path / "inner.sh").write_text(inner)
    assert words_of(read(tmp_path, "bash inner.sh")) == ["a=1", "b=2"]


@pytest.mark.parametrize(
    ("command", "seconds"),
    [
        ("timeout 30 {}", 30),
        ("timeout -k 5 --signal=INT 1.5m nohup {}", 90),
        ("timeout 1h timeout 40s {}", 40),
        ("timeout 45 bash -c '{}'", 45),
        ('limited() {{ timeout 20 "$@"; }}\nlimited {}', 20),
        ("timeout 0 {}", None),
        ("timeout $LIMIT {}", None),
        ("timeout 5 nvidia-smi\n{}", None),
        ("timeout infinity {}", None),
        ("timeout +3600 {}", 3600),
        ("timeout 30 {} &\nwait", 30),
        ("timeout 30 bash -c 'nohup {} &'", None),
        ("timeout 30 bash -c '({} &)'", None),
        ("timeout 30 bash -c 'setsid -f {}'", None),
        ("timeout 30 ray job submit --no-wait -- {}", None),
        ("timeout 30 ray job submit -- timeout 40 {}", 40),
        ("timeout 30 sbatch --wrap '{}'", None),
        ("timeout 30 tmux new-session -d '{}'", None),
        ("timeout 30 docker exec -d box {}", None),
    ],
)
def test_time_after_which_the_job_is_ended(tmp_path: Path, command: str, seconds: float | None) -> None:
    found = read(tmp_path, command.format(f"{START} a=1")).command
    assert found is not None
    assert found.ends_after == seconds


@pytest.mark.parametrize(
    ("export", "found"), [("export -f launch", True), ("declare -fx launch", True), ("export launch", False)]
)
def test_function_that_another_bash_gets(tmp_path: Path, export: str, found: bool) -> None:
    script = f'launch() {{ {START} "$@"; }}\n{export}\nbash -c \'launch "$@"\' _ a=1'
    command = read(tmp_path, script).command
    assert (command is not None) == found


@pytest.mark.parametrize(
    ("after", "first"),
    [
        ("|| exit 1", "r=1e-6,"),
        ("|| { echo failed; exit 1; }", "r=1e-6,"),
        ("|| exit 0", None),
        ("|| echo failed", None),
        ("&& exit 1", None),
    ],
)
def test_first_round_of_a_loop_that_ends_at_a_failure(tmp_path: Path, after: str, first: str | None) -> None:
    script = f"for r in 1e-6, 5e-7; do\n  {START} a=1 r=$r {after}\ndone"
    assert words_of(read(tmp_path, script)) == ["a=1", first]


@pytest.mark.parametrize(
    "start", ["$PY -u -m verl.trainer.main_ppo", '"$PY" -m verl.trainer.main_ppo', '"$PY" -uB train.py']
)
def test_program_whose_path_is_looked_up_may_be_python(tmp_path: Path, start: str) -> None:
    (tmp_path / "train.py").write_text("from verl.trainer.main_ppo import main\nmain()\n")
    found = read(tmp_path, f"PY=$(which python3)\n{start} a=1\n")
    assert words_of(found) == ["a=1"]


@pytest.mark.parametrize("search", ["which", "command -v", "type -P"])
def test_path_of_a_program_is_that_on_the_machine_of_the_job(tmp_path: Path, search: str) -> None:
    program = tmp_path / "env" / "bin" / "python3"
    program.parent.mkdir(parents=True)
    program.touch()
    script = f'PY=$({search} python3)\n[ -n "$({search} uv)" ] || {START} a=$PY\n'
    found = read(tmp_path, script, has_gpus=True, bin_folder=str(program.parent))
    assert words_of(found) == [f"a={program}"]
    script = f"export PATH=/own:$PATH\n{script}"
    assert words_of(read(tmp_path, script, has_gpus=True, bin_folder=str(program.parent))) == [None]


def test_words_of_an_evaluated_text_are_placed_at_its_line(tmp_path: Path) -> None:
    found = read(tmp_path, f'CMD="{START} a=1"\n\neval "$CMD"\n')
    assert found.command
    assert [word.line for word in found.command.words] == [3]

"""Commands at which bash stops are edited so that the script reaches the job; bash itself is the judge."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from verl_doctor.checks.configuration.job_makes_no_step import job_makes_no_step
from verl_doctor.checks.configuration.launch_script_refused_by_bash import launch_script_refused_by_bash
from verl_doctor.checks.configuration.path_begins_with_nothing import path_begins_with_nothing
from verl_doctor.checks.shared.configuration import configured
from verl_doctor.patches.launch.aliases_expanded import aliases_expanded
from verl_doctor.patches.launch.assignment_joined import assignment_joined
from verl_doctor.patches.launch.exported_variable import exported_variable
from verl_doctor.patches.launch.failure_allowed import failure_allowed
from verl_doctor.patches.launch.nothing_found_allowed import nothing_found_allowed
from verl_doctor.patches.launch.output_folder_made import output_folder_made
from verl_doctor.patches.launch.script_word import script_word
from verl_doctor.patches.launch.startup_file_optional import startup_file_optional
from verl_doctor.patches.launch.time_limit_removed import time_limit_removed
from verl_doctor.toolkit.change import Change, Refusal, ReplaceFile
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.hollow_paths import HollowPaths, hollow_paths
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.launch.launch_collector import launch
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.target import Target

FIXES = {
    fix.id: fix
    for fix in (
        aliases_expanded,
        assignment_joined,
        exported_variable,
        failure_allowed,
        nothing_found_allowed,
        output_folder_made,
        script_word,
        startup_file_optional,
    )
}
START = "python3 -m verl.trainer.main_ppo trainer.nnodes=1"
REACHED = 'python3() { echo "reached $*"; }\ntorchrun() { python3 "$@"; }\n'


def look(folder: Path, script: str) -> tuple[Launch, HollowPaths | Unknown, list[Finding]]:
    path = folder / "run.sh"
    path.write_text(script)
    machine = Machine(environ={"HOME": str(folder), "PATH": "/usr/bin:/bin"}, cwd=folder)
    read = launch.collect(Target(Path("/p"), "--python", files=(path,)), machine)
    assert isinstance(read, Launch)
    paths = hollow_paths.collect(read, machine)
    findings = list(launch_script_refused_by_bash.judge(read))
    if isinstance(paths, HollowPaths):
        findings += path_begins_with_nothing.judge(paths, Unknown("not read"), read)
    return read, paths, findings


def planned(folder: Path, script: str) -> tuple[str, list[Change] | Refusal]:
    """The fix of the only finding about a script, and what it does."""
    read, paths, (finding,) = look(folder, script)
    assert finding.fix, finding
    facts = {"launch": read, "paths": paths, "sources": SourceFiles(), "marker": Marker()}
    fix = FIXES[finding.fix]
    return fix.id, fix.plan(finding, **{need.parameter: facts[need.parameter] for need in fix.needs})


def repaired(folder: Path, script: str) -> tuple[str, str]:
    """The fix of the only finding about a script, and the script afterwards, about which there is none."""
    fix, changes = planned(folder, script)
    assert isinstance(changes, list), changes
    (change,) = changes
    assert isinstance(change, ReplaceFile)
    after = change.after.decode()
    assert look(folder, after)[2] == []
    return fix, after


def ran(folder: Path, script: str) -> tuple[int, str]:
    found = subprocess.run(
        ["bash", "-c", REACHED + script],
        capture_output=True,
        text=True,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
        check=False,
    )
    return found.returncode, found.stdout


def kept(line: str) -> str:
    return f"# {line}  {Marker().comment('CFG116')}\n"


@pytest.mark.parametrize(
    ("line", "new"),
    [
        ("read -r -d '' NOTES <<'EOF'", "read -r -d '' NOTES <<'EOF' || true"),
        ("((N++))", "((N++)) || true"),
        ("((N++)) # count", "((N++)) || true # count"),
        ("((N++)); echo one", "((N++)) || true; echo one"),
        ("let N++", "let N++ || true"),
    ],
)
def test_status_of_no_matter_no_longer_ends_the_script(tmp_path: Path, line: str, new: str) -> None:
    end = "some text\nEOF\n" if "EOF" in line else ""
    script = f"set -e\nN=0\n{line}\n{end}{START}\n"
    assert ran(tmp_path, script)[0] == 1
    fix, after = repaired(tmp_path, script)
    assert fix == "failure-allowed"
    assert after == f"set -e\nN=0\n{kept(line)}{new}\n{end}{START}\n"
    code, printed = ran(tmp_path, after)
    assert (code, "reached" in printed) == (0, True)


def test_startup_file_that_does_not_exist_is_optional(tmp_path: Path) -> None:
    script = f"set -ex\nsource ~/.bashrc\n{START}\n"
    assert ran(tmp_path, script)[0] == 1
    fix, after = repaired(tmp_path, script)
    assert (fix, startup_file_optional.safety) == ("startup-file-optional", "unsafe")
    assert after == f"set -ex\n{kept('source ~/.bashrc')}[ ! -e ~/.bashrc ] || source ~/.bashrc\n{START}\n"
    assert ran(tmp_path, after)[0] == 0
    (tmp_path / ".bashrc").write_text("echo sourced\nfalse\necho further\n")
    assert ran(tmp_path, after) == ran(tmp_path, script) == (1, "sourced\n")


def test_other_sourced_file_that_does_not_exist_is_left(tmp_path: Path) -> None:
    (finding,) = look(tmp_path, f"set -e\nsource ./settings.sh\n{START}\n")[2]
    assert finding.fix is None


@pytest.mark.parametrize(
    ("before", "line", "folder"),
    [
        ("", f"{START} > logs/first/train.log 2>&1", "logs/first"),
        ("", f"{START} \\\n  trainer.total_epochs=2 >> logs/train.log", "logs"),
        ("set -e\n", "exec > 'my logs/train.log'", "'my logs'"),
    ],
)
def test_folder_of_a_log_is_made(tmp_path: Path, before: str, line: str, folder: str) -> None:
    script = f"{before}{line}\n{START}\n" if line.startswith("exec") else f"{line}\n"
    assert ran(tmp_path, script)[0] == 1
    fix, after = repaired(tmp_path, script)
    assert fix == "output-folder-made"
    assert after == script.replace(line, f"mkdir -p {folder}  {Marker().comment('CFG116')}\n{line}")
    assert ran(tmp_path, after)[0] == 0
    assert ran(tmp_path, after)[0] == 0


@pytest.mark.parametrize(
    "line", ["LAST=$(ls -d checkpoints/step_* | sort | tail -n 1)", "LAST=$(ls -d checkpoints/step_*)"]
)
def test_search_that_finds_nothing_no_longer_ends_the_script(tmp_path: Path, line: str) -> None:
    script = f'set -euo pipefail\n{line}\necho "last: $LAST"\n{START}\n'
    assert ran(tmp_path, script)[0] != 0
    fix, after = repaired(tmp_path, script)
    assert (fix, nothing_found_allowed.safety) == ("nothing-found-allowed", "unsafe")
    assert f"\n{line} || true\n" in after
    assert "reached" in ran(tmp_path, after)[1]


def test_aliases_of_a_script_are_expanded(tmp_path: Path) -> None:
    script = f"set -e\nalias launch='{START}'\nlaunch trainer.total_epochs=1\n"
    assert ran(tmp_path, script)[0] != 0
    fix, changes = planned(tmp_path, script)
    assert fix == "aliases-expanded"
    assert isinstance(changes, list)
    (change,) = changes
    assert isinstance(change, ReplaceFile)
    after = change.after.decode()
    assert after.split("\n")[1] == f"shopt -s expand_aliases  {Marker().comment('CFG116')}"
    (tmp_path / "after.sh").write_text(REACHED + after)
    found = subprocess.run(["bash", "after.sh"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "reached -m verl.trainer.main_ppo trainer.nnodes=1 trainer.total_epochs=1" in found.stdout
    assert look(tmp_path, after)[0].stopped == ()


@pytest.mark.parametrize("line", ["export RUN = demo", "export RUN =demo", "declare RUN = demo"])
def test_declaration_with_blanks_is_joined(tmp_path: Path, line: str) -> None:
    script = f'set -e\n{line}\necho "run $RUN"\n{START}\n'
    assert ran(tmp_path, script)[0] != 0
    fix, after = repaired(tmp_path, script)
    assert fix == "assignment-joined"
    assert "run demo\n" in ran(tmp_path, after)[1]


@pytest.mark.parametrize(
    ("start", "new"),
    [
        ("timeout 4 python3", "python3"),
        ("env A=1 timeout 4s python3", None),
        ("timeout -k 1 4 python3", None),
    ],
)
def test_time_limit_before_the_first_step_goes(tmp_path: Path, start: str, new: str | None) -> None:
    script = f"set -x\n{start} -m verl.trainer.main_ppo \\\n  trainer.nnodes=1\n"
    read, _, _ = look(tmp_path, script)
    (finding, *_) = job_makes_no_step.judge(configured()[0], read)
    assert (finding.fix, time_limit_removed.safety) == ("time-limit-removed", "unsafe")
    changes = time_limit_removed.plan(finding, launch=read, sources=SourceFiles(), marker=Marker())
    if new is None:
        assert isinstance(changes, Refusal)
        return
    assert isinstance(changes, list)
    (change,) = changes
    assert isinstance(change, ReplaceFile)
    assert change.why
    assert f"\n{new} -m verl.trainer.main_ppo \\\n  trainer.nnodes=1\n" in change.after.decode()


@pytest.mark.parametrize("path", ["/proc/logs/train.log", "/not-mounted/logs/train.log"])
def test_folder_that_cannot_be_made_is_left(tmp_path: Path, path: str) -> None:
    (finding,) = look(tmp_path, f"{START} > {path}\n")[2]
    assert finding.fix is None
    assert "mkdir" not in finding.remedy


@pytest.mark.parametrize(
    "script", [f"case a in\n  a) {START} > logs/x ;;\nesac\n", f"bash <<EOF\n{START} > logs/x\nEOF\n"]
)
def test_no_line_is_added_where_none_can_stand(tmp_path: Path, script: str) -> None:
    (finding,) = look(tmp_path, script)[2]
    if finding.fix:
        assert isinstance(planned(tmp_path, script)[1], Refusal)


def test_variable_is_exported_to_the_shell_of_the_command(tmp_path: Path) -> None:
    script = f"MODEL=/models/a\nbash -c '{START} actor_rollout_ref.model.path=$MODEL/x'\n"
    fix, after = repaired(tmp_path, script)
    assert fix == "exported-variable"
    assert after.split("\n")[1] == f"export MODEL  {Marker().comment('CFG127')}"


@pytest.mark.parametrize("line", ["if true; then\n  MODEL=/a\nfi", "f() { MODEL=/a; }"])
def test_variable_that_may_not_be_set_is_not_exported(tmp_path: Path, line: str) -> None:
    script = f"{line}\nbash -c '{START} actor_rollout_ref.model.path=$MODEL/x'\n"
    assert not any(finding.fix for finding in look(tmp_path, script)[2])


@pytest.mark.parametrize("line", ["MODEL = /models/a", "MODEL =/models/a", "MODEL = '/models/a b'"])
@pytest.mark.parametrize("strict", ["", "set -e\n"])
def test_assignment_with_blanks_is_joined(tmp_path: Path, line: str, strict: str) -> None:
    script = f'{strict}{line}\n{START} actor_rollout_ref.model.path="$MODEL/x"\n'
    fix, after = repaired(tmp_path, script)
    assert fix == "assignment-joined"
    code = "CFG116" if strict else "CFG127"
    joined = line.replace(" =", "=").replace("= ", "=")
    assert after.split("\n")[-4:-2] == [f"# {line}  {Marker().comment(code)}", joined]
    assert "model.path=/models/a" in ran(tmp_path, after)[1]


@pytest.mark.parametrize(
    "line", ["MODEL = /models/a now", "MODEL == /models/a", "MODEL = $(cat", "MODEL /models/a"]
)
def test_unclear_assignment_is_left(tmp_path: Path, line: str) -> None:
    script = f'{line}\n{START} actor_rollout_ref.model.path="$MODEL/x"\n'
    for finding in look(tmp_path, script)[2]:
        if finding.fix:
            assert isinstance(planned(tmp_path, script)[1], Refusal)


@pytest.mark.parametrize(
    ("start", "module", "new"),
    [
        ("torchrun --nproc_per_node=1", "verl.trainer.sft_trainer", "-m verl.trainer.sft_trainer"),
        ("python3", "verl.trainer.main_ppo", "-m verl.trainer.main_ppo"),
        ("python3 -u", "verl/trainer/main_ppo.py", "-m verl.trainer.main_ppo"),
        ("python3", "../verl/verl/trainer/main_ppo.py", "-m verl.trainer.main_ppo"),
    ],
)
def test_module_that_is_opened_as_a_file_gets_its_option(
    tmp_path: Path, start: str, module: str, new: str
) -> None:
    script = f"{start} {module} \\\n  trainer.nnodes=1 \\\n  trainer.total_epochs=1\n"
    fix, after = repaired(tmp_path, script)
    assert fix == "script-word"
    assert f"\n{start} {new} \\\n  trainer.nnodes=1 \\\n" in after


def test_module_with_the_ending_of_its_file_loses_it(tmp_path: Path) -> None:
    fix, after = repaired(tmp_path, "torchrun -m verl.trainer.sft_trainer.py trainer.nnodes=1\n")
    assert fix == "script-word"
    assert after.endswith("\ntorchrun -m verl.trainer.sft_trainer trainer.nnodes=1\n")


@pytest.mark.parametrize("name", ["train.py", "./verl_train/main_ppo.py", "mine/trainer.py"])
def test_source_that_does_not_exist_is_left(tmp_path: Path, name: str) -> None:
    (finding,) = look(tmp_path, f"python3 {name} trainer.nnodes=1 trainer.total_epochs=1\n")[2]
    assert finding.fix is None

"""A check and a fix from outside, through the entry points; and plugins that misbehave."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from support import running
from support.places import TESTS
from support.running import Doctor

from verl_doctor.toolkit.engine import plugin_limits, plugin_trial
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.system import toml
from verl_doctor.toolkit.testing import check_examples

pytestmark = pytest.mark.slow  # each starts several processes
EXAMPLE = TESTS / "plugin"


def install(site: Path, name: str, source: str, entry_points: dict[str, dict[str, str]]) -> None:
    """Lay a distribution out as an installer would."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    groups = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in group_of.items())
        for group, group_of in entry_points.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups))
    (site / f"{name}.py").write_text(source)


def doctor(*arguments: str, site: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return running.doctor(*arguments, cwd=cwd, PYTHONPATH=str(site), XDG_STATE_HOME=str(cwd / ".state"))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    project = toml.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    folder = tmp_path / "site"
    install(
        folder,
        "verl_doctor_example",
        (EXAMPLE / "verl_doctor_example.py").read_text(),
        project["entry-points"],
    )
    return folder


def test_example_plugin_is_judged_repaired_and_undone(site: Path, tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()

    def status() -> str:
        report = json.loads(
            doctor("check", "--select", "TEAM101", "--format", "json", site=site, cwd=job).stdout
        )
        return report["results"][0]["status"]

    assert status() == "fail"
    applied = doctor("fix", "--apply", "--select", "TEAM101", site=site, cwd=job)
    assert applied.returncode == 0, applied.stderr
    assert "repaired" in applied.stdout
    assert (job / "OWNER").read_text() == "research\n"
    assert status() == "pass"
    assert doctor("undo", site=site, cwd=job).returncode == 0
    assert not (job / "OWNER").exists()


def test_examples_of_the_plugin_are_its_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    example = importlib.import_module("verl_doctor_example")
    check_examples(example.folder_without_owner)
    check_examples(example.project_without_name)


def test_plugins_are_listed_with_their_contents(site: Path, tmp_path: Path) -> None:
    listed = doctor("plugins", site=site, cwd=tmp_path).stdout
    for code in ("TEAM101", "TEAM102"):
        assert f"verl_doctor_example 1.0: checks {code}" in listed.replace("-", "_")
    assert "Every night" in doctor("explain", "team101", site=site, cwd=tmp_path).stdout


# The first import is in a child; what follows happens only in verl-doctor itself.
IN_THE_DOCTOR = "import sys\nhere = not sys.argv[0].endswith('plugin_import.py')"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise ValueError('boom')", "ValueError: boom"),
        ("import sys; sys.exit(3)", "its import ends the process with status 3"),
        ("import sys; sys.exit(0)", "its import ends the process with status 0"),
        ("import os; os._exit(0)", "its import ends the process with status 0"),
        ("import os; os.kill(os.getpid(), 9)", "the process was ended by signal 9"),
        (
            "import threading, time\nthreading.Thread(target=time.sleep, args=(999,), name='mine').start()",
            "leaves something running: the thread mine",
        ),
        ("import os, time\nos.fork() or time.sleep(5)", "leaves something running: a process"),
        ("import signal\nsignal.setitimer(signal.ITIMER_REAL, 9)", "leaves something running: an alarm"),
        (
            "import os, pathlib\nseen = pathlib.Path(__file__ + '.seen')\nseen.exists() and os._exit(0)\nseen.touch()",
            "a plugin tried to end the doctor with status 0",
        ),
        (
            "import _thread, time\n_thread.start_new_thread(time.sleep, (999,))",
            "leaves something running: a thread without a name",
        ),
        (
            "import builtins\nbuiltins.len = lambda _: 0",
            "replaces what verl-doctor itself uses: builtins.len",
        ),
        (
            "import builtins\nbuiltins.__import__ = None",
            "replaces what verl-doctor itself uses: builtins.__import__",
        ),
        ("import sys\nsys.modules['json'] = None", "replaces what verl-doctor itself uses: module json"),
        ("import sys\nsys.setrecursionlimit(50)", "itself uses: the limit of recursion"),
        (
            "import json\njson.JSONEncoder.encode = lambda *_: '{}'",
            "replaces what Python itself uses to write JSON",
        ),
        (f"{IN_THE_DOCTOR}\nif here: __import__('posix')._exit(0)", "tried to end the doctor with status 0"),
        ("import sys\nsys.modules.clear()", "replaces what verl-doctor itself uses"),
        ("import sys\nsys.meta_path.clear()", "replaces what verl-doctor itself uses: finder"),
        (
            f"{IN_THE_DOCTOR}\nif here: vars(__import__('builtins')).update(len=None)\npart = 3",
            "itself uses: builtins.len",
        ),
        (f"{IN_THE_DOCTOR}\nif here: del sys.modules['json']\npart = 3", "itself uses: module json"),
        (f"{IN_THE_DOCTOR}\nif here: __import__('os').execv('/bin/true', ['true'])", "with another program"),
        (
            "import os\nfor number in range(256):\n    try: os.close(number)\n    except OSError: pass",
            "its import ends the process",
        ),
        ("part = 3", "it offers no check, fix or collector"),
        ("from verl_doctor_nowhere import part", "ModuleNotFoundError"),
        (
            "def part(): 'x'\nfrom verl_doctor.toolkit.rule import check\npart = check('PY100')(part)",
            "already taken",
        ),
    ],
)
def test_broken_plugin_is_a_finding_and_the_run_continues(tmp_path: Path, source: str, reason: str) -> None:
    install(tmp_path / "site", "broken", source, {"verl_doctor.checks": {"part": "broken:part"}})
    done = doctor("check", "--select", "PY190", "--format", "json", site=tmp_path / "site", cwd=tmp_path)
    finding = json.loads(done.stdout)["results"][0]["findings"][0]
    assert reason in finding["message"] + finding["evidence"]["found"]
    assert "Traceback" not in done.stderr


NOISE = """
import atexit, os
print("NOISE at import")
atexit.register(print, "NOISE at exit")
atexit.register(os._exit, 7)
os.write(1, b"NOISE from below")
from verl_doctor.toolkit.rule import Finding, check
@check("HOST951", severity="error", examples=[])
def part():
    '''Loud.

    ## Why it matters

    It is loud.

    ## How to fix

    Do not.
    '''
    print("NOISE while judging")
    return ()
"""


def test_output_of_a_plugin_does_not_enter_the_report(tmp_path: Path) -> None:
    install(tmp_path / "site", "loud", NOISE, {"verl_doctor.checks": {"part": "loud:part"}})
    done = doctor("check", "--select", "HOST951", "--format", "json", site=tmp_path / "site", cwd=tmp_path)
    assert json.loads(done.stdout)["results"][0]["status"] == "pass", done.stdout
    assert done.returncode == 0
    assert done.stderr.count("NOISE") == 4
    listed = doctor("rules", site=tmp_path / "site", cwd=tmp_path).stdout
    assert "HOST951" in listed
    assert "NOISE" not in listed


def test_plugin_can_be_disabled(tmp_path: Path) -> None:
    install(tmp_path / "site", "broken", "raise ValueError", {"verl_doctor.checks": {"part": "broken:part"}})
    (tmp_path / "verl-doctor.toml").write_text('disable_plugins = ["broken"]\n')
    done = doctor("check", "--select", "PY190", "--format", "json", site=tmp_path / "site", cwd=tmp_path)
    assert json.loads(done.stdout)["results"][0]["status"] == "pass"


def test_endless_plugin_import_is_a_finding_and_the_rest_is_judged(
    here: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process: the limit is shortened. The report is complete, and the broken plugin has its name in it."""
    source = "import time\nwhile True: time.sleep(1)"
    install(tmp_path / "site", "endless", source, {"verl_doctor.checks": {"part": "endless:part"}})
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(plugin_trial, "LIMIT", 1.0)
    done = here("check", "--select", "PY", "--format", "json", cwd=tmp_path)
    results = {result["code"]: result for result in json.loads(done.stdout)["results"]}
    (finding,) = results["PY190"]["findings"]
    assert "endless" in finding["message"]
    assert "its import did not end within 1 s" in finding["message"] + finding["evidence"]["found"]
    assert results["PY100"]["status"] == "pass"


@pytest.mark.parametrize(
    "hang", ["while here: time.sleep(1)", "lock = threading.Lock()\nwhile here: lock.acquire()"]
)
def test_import_that_hangs_only_in_the_doctor_is_a_finding(tmp_path: Path, hang: str) -> None:
    """In another process, with a shortened limit: a signal ends the import in its first thread."""
    source = f"{IN_THE_DOCTOR}\nimport threading, time\n{hang}\n"
    install(tmp_path / "site", "late_hang", source, {"verl_doctor.checks": {"part": "late_hang:part"}})
    shortened = (
        "import sys\nfrom verl_doctor.toolkit.engine import plugin_trial\nplugin_trial.LIMIT = 3.0\n"
        "sys.argv[0] = 'verl-doctor'\nfrom verl_doctor.toolkit.cli.main import main\nmain()"
    )
    words = ("check", "--select", "PY190,PY100", "--format", "json")
    done = running.ran(
        [sys.executable, "-c", shortened, *words], tmp_path, {"PYTHONPATH": str(tmp_path / "site")}
    )
    results = {result["code"]: result for result in json.loads(done.stdout)["results"]}
    (finding,) = results["PY190"]["findings"]
    assert "late_hang" in finding["message"]
    assert "did not end within 3 s in verl-doctor itself" in finding["message"] + finding["evidence"]["found"]
    assert results["PY100"]["status"] == "pass"


def test_successfully_imported_plugin_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", "quick", "part = 3", {"verl_doctor.checks": {"part": "quick:part"}})
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    entry_point = EntryPoint("part", "quick:part", "verl_doctor.checks")
    assert plugin_trial.why_unusable(entry_point) == ""
    monkeypatch.setattr(plugin_trial, "_tried", lambda *_: Unknown("it was tried again"))
    assert plugin_trial.why_unusable(entry_point) == ""
    (tmp_path / "site/quick.py").write_text("import os; os._exit(0)")
    assert plugin_trial.why_unusable(entry_point) == "it was tried again"


RULE = """
import atexit, os, sys, threading, time
from verl_doctor.toolkit.rule import Evidence, Finding, check
class Text(str):
    def __len__(self): raise ValueError("length")
    __str__ = __format__ = __len__
@check("HOST951", severity="error", examples=[])
def part():
    '''Rude.

    ## Why it matters

    It is rude.

    ## How to fix

    Do not.
    '''
    BODY
    return
    yield
"""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("while True: time.sleep(1)", "it did not end within 3 s"),
        ("while True: yield Finding('x', Evidence('y'))", "it yields more than 10,000 findings"),
        ("yield Finding('x' * 2_000_000, Evidence('y'))", "its findings have more than 1,000,000 characters"),
        ("raise KeyboardInterrupt", "it raises KeyboardInterrupt"),
        ("sys.exit(0)", "SystemExit: 0"),
    ],
)
def test_rule_without_end_is_reported_and_the_rest_is_judged(
    here: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, reason: str
) -> None:
    install(
        tmp_path / "site",
        "rude_rule",
        RULE.replace("BODY", body),
        {"verl_doctor.checks": {"part": "rude_rule:part"}},
    )
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delitem(sys.modules, "rude_rule", raising=False)
    monkeypatch.setattr(plugin_limits, "LIMIT", 3.0)
    done = here("check", "--select", "HOST951,PY100", "--format", "json", cwd=tmp_path)
    results = {result["code"]: result for result in json.loads(done.stdout)["results"]}
    assert results["HOST951"]["status"] == "error"
    assert reason in results["HOST951"]["reason"]
    assert results["PY100"]["status"] == "pass"


def test_texts_of_a_plugin_are_plain(tmp_path: Path) -> None:
    source = RULE.replace("BODY", "yield Finding(Text('mine'), Evidence(Text('found')))")
    install(tmp_path / "site", "rude_rule", source, {"verl_doctor.checks": {"part": "rude_rule:part"}})
    done = doctor("check", "--select", "HOST951", "--format", "json", site=tmp_path / "site", cwd=tmp_path)
    (finding,) = json.loads(done.stdout)["results"][0]["findings"]
    assert (finding["message"], finding["evidence"]["found"]) == ("mine", "found")


@pytest.mark.parametrize(
    "body", ["threading.Thread(target=time.sleep, args=(600,)).start()", "atexit.register(time.sleep, 600)"]
)
def test_plugin_cannot_keep_the_doctor_alive(tmp_path: Path, body: str) -> None:
    install(
        tmp_path / "site",
        "rude_rule",
        RULE.replace("BODY", body),
        {"verl_doctor.checks": {"part": "rude_rule:part"}},
    )
    done = doctor("check", "--select", "HOST951", "--format", "json", site=tmp_path / "site", cwd=tmp_path)
    assert json.loads(done.stdout)["results"][0]["status"] == "pass"
    assert done.returncode == 0


def test_fork_in_a_rule_writes_no_second_report(tmp_path: Path) -> None:
    install(
        tmp_path / "site",
        "rude_rule",
        RULE.replace("BODY", "os.fork()"),
        {"verl_doctor.checks": {"part": "rude_rule:part"}},
    )
    done = doctor("check", "--select", "HOST951", "--format", "json", site=tmp_path / "site", cwd=tmp_path)
    assert json.loads(done.stdout)["results"][0]["status"] == "pass"


def test_module_that_cannot_be_imported_is_tried_once_for_all_its_entry_points(
    here: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import os, pathlib\nwith open(pathlib.Path(__file__).with_suffix('.seen'), 'a') as file: file.write('x')\nos._exit(0)"
    points = {f"part{number}": f"broken_once:part{number}" for number in range(5)}
    install(tmp_path / "site", "broken_once", source, {"verl_doctor.checks": points})
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    done = here("check", "--select", "PY190", "--format", "json", cwd=tmp_path)
    assert len(json.loads(done.stdout)["results"][0]["findings"]) == 5
    assert (tmp_path / "site/broken_once.seen").read_text() == "x"

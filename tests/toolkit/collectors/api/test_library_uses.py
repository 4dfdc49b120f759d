"""Verl's uses of Ray, transformers, tensordict and SGLang, by path of a job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.environments import interpreter, site_packages
from support.miniatures.source_trees import write

from verl_doctor.toolkit.collectors.api.trees import read_libraries
from verl_doctor.toolkit.collectors.api.uses import ApiUse, LibraryUses
from verl_doctor.toolkit.collectors.api.uses_collector import library_uses
from verl_doctor.toolkit.collectors.installed.listings import Listings
from verl_doctor.toolkit.collectors.installed.trees import LibraryTrees, Tree, VerlTrees, library_trees
from verl_doctor.toolkit.engine import factsfile
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.target import Target

NO_JOB = Absent("no launch script was named")
MAIN = """
import ray
from verl.trainer.ppo import fit

class TaskRunner:
    def run(self, config):
        if config.actor.strategy in {"fsdp", "fsdp2"}:
            from verl.workers.fsdp_workers import ActorWorker
        elif config.actor.strategy == "megatron":
            from verl.workers.megatron_workers import ActorWorker
        fit(ActorWorker)
"""
VERL = {
    "trainer/main_ppo.py": MAIN,
    "trainer/ppo.py": "def fit(worker): ...\n",
    "workers/fsdp_workers.py": "class ActorWorker: ...\n",
    "workers/megatron_workers.py": "class ActorWorker: ...\n",
    "workers/rollout/vllm_rollout/__init__.py": "",
    "workers/rollout/vllm_rollout/vllm_async_server.py": "ready = True\n",
}
RAY = {"__init__.py": "from ray._private.worker import get, init\n__version__ = '1.0'\n", "_private/worker.py": "def get(refs): ...\ndef init(): ...\n"}  # fmt: skip
TENSORDICT = {"__init__.py": "from tensordict._td import TensorDict\n", "_td.py": "class TensorDict:\n    def to(self, device): ...\n"}  # fmt: skip


def tree(folder: Path, name: str, files: dict[str, str]) -> Tree:
    return Tree(str(write(folder / name, files)), name, "1.0", "--" + name)


def read(folder: Path, verl: dict[str, str], **libraries: dict[str, str]) -> LibraryUses:
    trees = [tree(folder, name, files) for name, files in libraries.items()]
    found = read_libraries(tree(folder, "verl", {**VERL, **verl}), trees, "3.10.1")
    assert isinstance(found, LibraryUses)
    return found


def broken(found: LibraryUses) -> list[ApiUse]:
    return [use for answer in found.answers for use in answer.uses if use.breaks]


def test_trainer_runs_its_main_module_and_workers_of_the_default_strategy(tmp_path: Path) -> None:
    gone = "from tensordict import Gone\n"
    files = {"workers/fsdp_workers.py": gone, "workers/megatron_workers.py": gone}
    fsdp, megatron = broken(read(tmp_path, files, tensordict=TENSORDICT))
    assert fsdp.paths == ("trainer",)
    assert (megatron.path.endswith("megatron_workers.py"), megatron.paths) == (True, ())


def test_every_rollout_is_a_separate_path(tmp_path: Path) -> None:
    files = {"workers/rollout/vllm_rollout/vllm_async_server.py": "from ray import Gone\n"}
    found = read(tmp_path, files, ray=RAY)
    assert found.paths == ("trainer", "sync rollout", "async rollout")
    assert [use.paths for use in broken(found)] == [("async rollout",)]


def test_each_library_has_a_separate_result(tmp_path: Path) -> None:
    files = {"trainer/ppo.py": "import ray\nfrom tensordict import Gone\ndef fit(worker):\n    ray.gone(1)\n"}
    found = read(tmp_path, files, ray=RAY, tensordict=TENSORDICT)
    assert {answer.library.module: [use.last for use in answer.uses if use.breaks] for answer in found.answers} == {
        "ray": ["gone"],
        "tensordict": ["Gone"],
    }  # fmt: skip


def test_identifier_ending_in_a_library_name_is_not_a_use(tmp_path: Path) -> None:
    found = read(tmp_path, {"trainer/ppo.py": "array = gray = 1\ndef fit(worker): ...\n"}, ray=RAY)
    assert broken(found) == []


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    from ray import Gone\nexcept ImportError:\n    from ray import get as Gone\n",
        "from importlib.metadata import version\nif version('ray') < '1':\n    from ray import Gone\n",
        "import ray\nfrom packaging.version import parse\nif parse(ray.__version__) < parse('1.0'):\n    from ray import Gone\n",
        "import ray\nif hasattr(ray, 'Gone'):\n    ray.Gone()\n",
    ],
)
def test_guarded_uses_do_not_break(tmp_path: Path, text: str) -> None:
    found = read(tmp_path, {"trainer/ppo.py": f"{text}\ndef fit(worker): ...\n"}, ray=RAY)
    assert [use for use in broken(found) if use.paths and not use.when] == []


def test_calls_of_decorated_public_ray_functions_are_judged(tmp_path: Path) -> None:
    ray = {
        "__init__.py": "from ray.groups import group\n",
        "groups.py": "@PublicAPI(stability='stable')\n@client_mode_hook\ndef group(bundles, strategy='PACK'): ...\n",
    }
    text = "import ray\ndef fit(worker):\n    ray.group([], strategy='SPREAD', strateg=1)\n"
    (use,) = broken(read(tmp_path, {"trainer/ppo.py": text}, ray=ray))
    assert (use.kind, use.name, use.now) == ("keyword", "ray.groups.group(strateg)", "strategy")


def test_installed_sglang_has_separate_paths(tmp_path: Path) -> None:
    registry = (
        '_ROLLOUT_REGISTRY = {("sglang", "async"): "verl.workers.rollout.sglang_rollout.engine.Adapter"}\n'
    )
    files = {
        "workers/rollout/base.py": registry,
        "workers/rollout/sglang_rollout/engine.py": "from sglang.srt.server import Gone, Server\n",
        "workers/rollout/sglang_rollout/async_sglang_server.py": "ready = True\n",
    }
    sglang = {"__init__.py": "", "srt/server.py": "class Server: ...\n"}
    found = read(tmp_path, files, sglang=sglang)
    assert found.paths == ("trainer", "sync rollout", "async rollout", "async rollout with SGLang")
    assert [(use.last, use.paths) for use in broken(found)] == [("Gone", ("async rollout with SGLang",))]


def test_rollout_is_optional_without_sglang(tmp_path: Path) -> None:
    files = {"workers/rollout/sglang_rollout/async_sglang_server.py": "from ray import Gone\n"}
    found = read(tmp_path, files, ray=RAY)
    assert found.paths == ("trainer", "sync rollout", "async rollout")
    assert broken(found) == []


def test_invalid_python_in_trainer_and_library_is_reported(tmp_path: Path) -> None:
    files = {"trainer/ppo.py": "def fit(:\n", "workers/fsdp_workers.py": "from ray.half import x\n"}
    found = read(tmp_path, files, ray={**RAY, "half.py": "def x(:\n"})
    assert [(file.module, file.paths) for file in found.unread] == [("verl.trainer.ppo", ("trainer",))]
    assert [(file.module, file.paths) for answer in found.answers for file in answer.unread] == [
        ("ray.half", ("trainer",))
    ]


def test_tree_without_trainer_and_rollout_has_no_paths(tmp_path: Path) -> None:
    empty = tree(tmp_path, "verl", {"workers/other.py": "import ray\n"})
    assert isinstance(read_libraries(empty, [tree(tmp_path, "ray", RAY)]), Absent)


def test_installed_or_named_trees_are_read(tmp_path: Path) -> None:
    site = site_packages(tmp_path)
    installed = write(site / "ray", RAY)
    (site / "ray-2.60.0.dist-info").mkdir()
    named = write(tmp_path / "bare" / "tensordict", {"_version.py": "__version__ = '0.8.3'\n"})
    python = replace(interpreter(site), libraries=(("ray", str(installed)), ("sglang", "")))
    target = Target(Path("/env/bin/python"), "--python", libraries=(("tensordict", named),))
    found = library_trees.collect(target, python)
    assert isinstance(found, LibraryTrees)
    assert [(part.module, part.version, part.found_in) for part in found.trees] == [
        ("ray", "2.60.0", "site-packages"),
        ("tensordict", "0.8.3", "--tensordict"),
    ]


def test_missing_library_is_distinguished_from_a_hanging_interpreter() -> None:
    target = Target(Path("/env/bin/python"), "--python")
    assert isinstance(library_trees.collect(target, interpreter()), Absent)
    silent = library_trees.collect(target, Unknown("no answer"))
    assert isinstance(silent, Unknown)
    assert not isinstance(silent, Absent)


def test_every_run_has_an_actor_worker(tmp_path: Path) -> None:
    workers = """
        class ActorWorker:
            def init_model(self):
                if self._is_actor or self._is_rollout:
                    from ray import Gone
                if self._is_ref:
                    from ray import GoneToo
        """
    gone, too = broken(read(tmp_path, {"workers/fsdp_workers.py": workers}, ray=RAY))
    assert (gone.when, gone.paths) == ("", ("trainer",))
    assert too.when == "self._is_ref"


def test_result_is_cached_and_stored_in_a_facts_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verl = tree(tmp_path, "verl", {**VERL, "trainer/ppo.py": "from ray import Gone\ndef fit(worker): ...\n"})
    libraries = LibraryTrees((tree(tmp_path, "ray", RAY),))
    python = interpreter()
    first = library_uses.collect(VerlTrees(verl, "it was named"), libraries, python, Listings(), NO_JOB)
    assert isinstance(first, LibraryUses)
    monkeypatch.setattr("verl_doctor.toolkit.collectors.api.trees.read_libraries", None)
    again = library_uses.collect(VerlTrees(verl, "it was named"), libraries, python, Listings(), NO_JOB)
    assert again == first
    text = factsfile.dump({LibraryUses: first}, [library_uses], "1")
    (tmp_path / "facts.json").write_text(text)
    assert factsfile.load(tmp_path / "facts.json", [library_uses]) == {LibraryUses: first}

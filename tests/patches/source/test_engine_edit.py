"""The edit of verl's async server: its engine process joins the Ray of its parent, in the forms that copies of it have."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.miniatures.engine_sources import server

from verl_doctor.patches.source.engine_joins_own_ray import engine_joins_own_ray
from verl_doctor.patches.source.engine_keeps_namespace import engine_keeps_namespace
from verl_doctor.toolkit.change import Refusal, ReplaceFile
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.marker import Marker, marked_lines
from verl_doctor.toolkit.rule import Evidence, Finding, Location
from verl_doctor.toolkit.sources.python.restore import restored

REMEDY = """\
    try:
        ray.init(address="auto", namespace=namespace, ignore_reinit_error=True)
    except Exception as error:
        print(error)
        ray.init(namespace=namespace)
    """
FORMS = {
    "as released": server(),
    "with an address": server('ray.init(address="auto", namespace=namespace)\n'),
    "by position": server('ray.init("auto", namespace=namespace)\n'),
    "in no namespace": server("ray.init()\n"),
    "with other arguments": server("ray.init(namespace=namespace, num_cpus=1, logging_level='ERROR')\n"),
    "with a fallback that starts one": server(REMEDY),
    "unless it is connected": server("if not ray.is_initialized():\n    ray.init(namespace=namespace)\n"),
    "counted the other way round": server(counts="assert int(size) == len(found)\n"),
    "without os": server(imports="import ray\n").replace("os.environ.get(", "dict().get("),
    "with tabs": server().replace("    ", "\t"),
    "with Windows line ends": server().replace("\n", "\r\n"),
    "over several lines": server("ray.init(\n    namespace=namespace,\n)\n"),
    "behind backslashes": server(counts="assert len(found) \\\n    == int(size), \\\n    'too few'\n"),
    "with something between": server(
        looks=server.__kwdefaults__["looks"] + "print(found)  # what is there\n"
    ),
}
REFUSED = {
    "states how many are expected": server(counts="print(found)\n"),
    "the result of ray.init is used": server("context = ray.init(namespace=namespace)\n"),
    "called with **": server("ray.init(**options)\n"),
    "called more than once": server("ray.init()\nray.init(namespace=namespace)\n"),
    "no name for the namespace": server("ray.init()\n", reads='prefix, size = self.config.instance_id.split(":")\n'),
    "where the engine gets its instance_id": server(parent=""),
    "no function calls ray.init and picks": server(looks="found = ray.util.list_named_actors()\n"),
    "found changes before": server(counts="found = found[:2]\nassert len(found) == int(size)\n"),
    "other code on the same line": server("x = 1; ray.init(namespace=namespace)\n"),
    "pause means something else": server(reads="pause = 1\n" + server.__kwdefaults__["reads"]),
    "time means something else": server(reads="time = 1\n" + server.__kwdefaults__["reads"]),
    "os means something else in start": server().replace("        config = arg", "        os = 1\n        config = arg"),
    "does not read an instance_id": server(reads='namespace, prefix, size = self.told.split(":")\n', counts="assert len(found) == int(size)\n"),
    "already passed on": server().replace("        config.instance_id", "        os.environ['RAY_ADDRESS'] = ray.get_runtime_context().gcs_address\n        config.instance_id"),
    "cannot be parsed": server() + "def\n",
}  # fmt: skip


def plan(folder: Path, text: str, fix: Any = engine_joins_own_ray) -> Any:
    path = folder / "server.py"
    path.write_bytes(text.encode())
    finding = Finding("astray", Evidence("found"), Location(str(path), 1))
    return fix.plan(finding, SourceFiles(), Marker())


def after(folder: Path, text: str) -> str:
    (edit,) = plan(folder, text)
    assert isinstance(edit, ReplaceFile)
    assert edit.before == text.encode()
    return edit.after.decode()


class Ray:
    """A Ray of two clusters by address; `late` is the number of queries before the actors have names."""

    def __init__(self, actors: list[dict[str, str]], late: int = 0) -> None:
        self.actors, self.late, self.joined, self.namespace = actors, late, "", ""
        self.util = SimpleNamespace(list_named_actors=self._names)
        self._private = SimpleNamespace(
            worker=SimpleNamespace(_global_node=SimpleNamespace(session_name="session_1"))
        )

    def init(self, address: str = "", namespace: str = "", **_: Any) -> None:
        assert address, "a new Ray was started"
        if address == "10.0.0.9:6379":
            raise ConnectionError("nobody is there")
        self.joined, self.namespace = address, namespace

    def is_initialized(self) -> bool:
        return False

    def get_runtime_context(self) -> SimpleNamespace:
        return SimpleNamespace(namespace="train", gcs_address=self.joined or "10.0.0.1:6379")

    def get_actor(self, name: str) -> str:
        return name

    def _names(self, *, all_namespaces: bool = False) -> list[Any]:
        self.late -= 1
        if self.late >= 0:
            return []
        if all_namespaces:
            return self.actors
        return [actor["name"] for actor in self.actors if actor["namespace"] == self.namespace]


def run(text: str, ray: Ray, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run parent and engine process of a server and return the actors found by the engine."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setenv("RAY_ADDRESS", "local")
    code = "\n".join(line for line in text.splitlines() if not line.startswith(("import ray", "from vllm")))
    names: dict[str, Any] = {
        "ray": ray,
        "os": os,
        "Executor": object,
        "Engine": lambda config, executor: config,
    }
    exec(code, names)
    parent = names["Server"]()
    parent.prefix, parent.size, parent.rank = "abc", 2, 0
    config = parent.start(SimpleNamespace(create_engine_config=SimpleNamespace))
    executor = names["RayExecutor"]()
    executor.config = config
    executor._init_executor()
    return executor.workers


def actors(namespace: str = "train") -> list[dict[str, str]]:
    return [{"name": f"abcWorkerDict_0:{rank}", "namespace": namespace} for rank in range(2)]


@pytest.mark.parametrize("form", FORMS)
def test_engine_finds_its_workers_in_the_ray_of_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    ray = Ray(actors(), late=3)
    text = after(tmp_path, FORMS[form])
    assert run(text, ray, monkeypatch) == ["abcWorkerDict_0:0", "abcWorkerDict_0:1"]
    assert (ray.joined, ray.namespace) == ("10.0.0.1:6379", "train")
    assert "Refusal" in str(plan(tmp_path, text)), "a second time there is nothing to do"


@pytest.mark.parametrize("form", FORMS)
def test_original_code_is_kept_in_the_edit(tmp_path: Path, form: str) -> None:
    text = after(tmp_path, FORMS[form])
    marked = {number: marker for number, marker, _ in marked_lines(text, Marker(), ())}
    assert set(marked.values()) == {"verl-doctor: RAY120"}
    before = restored(text, marked, "verl-doctor")
    assert not before.undetermined
    assert before.text.split() == FORMS[form].split()


def test_workers_in_another_namespace_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError) as raised:
        run(after(tmp_path, server()), Ray(actors("other")), monkeypatch)
    message = str(raised.value)
    assert message.startswith("instance_id: train:abc:2:0 has 0 actors of 2 expected")
    assert "namespace train of the Ray cluster at 10.0.0.1:6379 (session_1)" in message
    assert "such ones in ['other'] namespace. Let the trainer and the rollout use one" in message


def test_missing_workers_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = Ray([{"name": "register_center", "namespace": "train"}])
    with pytest.raises(
        RuntimeError, match=r"has 1 named actors, and such ones in no other namespace\. .*have ended"
    ):
        run(after(tmp_path, server()), ray, monkeypatch)


def test_unreachable_ray_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = Ray(actors())
    ray.joined = "10.0.0.9:6379"
    with pytest.raises(RuntimeError) as raised:
        run(after(tmp_path, server()), ray, monkeypatch)
    assert "cannot join the Ray cluster at 10.0.0.9:6379 to look into namespace train" in str(raised.value)
    assert "starts none of its own: nobody is there" in str(raised.value)


@pytest.mark.parametrize("found", [actors(), []], ids=["found", "not found"])
def test_record_is_written_where_requested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: list[dict[str, str]]
) -> None:
    monkeypatch.setenv("VERL_ENGINE_RECORD_DIR", str(tmp_path))
    try:
        run(after(tmp_path, server()), Ray(found), monkeypatch)
    except RuntimeError:
        assert not found
    message = (tmp_path / "train:abc:2:0.log").read_text()
    assert f"has {len(found)} actors of 2" in message
    assert all(actor["name"] in message for actor in found)


@pytest.mark.parametrize("why", REFUSED)
def test_unfamiliar_code_is_refused(tmp_path: Path, why: str) -> None:
    answer = plan(tmp_path, REFUSED[why])
    assert isinstance(answer, Refusal), answer
    assert why in answer.reason


def test_marker_names_the_rule(tmp_path: Path) -> None:
    (edit,) = plan(tmp_path, server("ray.init()\n"), engine_keeps_namespace)
    assert b"# verl-doctor: RAY122\n" in edit.after
    assert b"RAY120" not in edit.after

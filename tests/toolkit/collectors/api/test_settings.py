"""The script's values, verl's defaults and variables decide which places of verl a job reaches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.miniatures.source_trees import verl, vllm

from verl_doctor.checks.api.vllm_attribute_missing import vllm_attribute_missing
from verl_doctor.toolkit.collectors.api.settings import Settings, switched_on
from verl_doctor.toolkit.collectors.api.surroundings import Surroundings
from verl_doctor.toolkit.collectors.api.trees import read_trees
from verl_doctor.toolkit.collectors.api.uses import ApiUse, VllmUses
from verl_doctor.toolkit.collectors.api.uses_collector import _remembered
from verl_doctor.toolkit.collectors.installed.listings import Listings
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.testing import run_check

VLLM = {"a.py": "class A:\n    there = 1"}
DEFAULTS: dict[str, Any] = {
    "actor_rollout_ref": {
        "model": {
            "lora_rank": 0,
            "lora": {"rank": 0, "merge": False},
            "_target_": "verl.workers.config.HFModelConfig",
        },
        "actor": {"strategy": "fsdp"},
        "rollout": {
            "_target_": "verl.workers.config.RolloutConfig",
            "quantization": None,
            "tensor_model_parallel_size": 2,
            "checkpoint_engine": {
                "_target_": "verl.workers.config.CheckpointEngineConfig",
                "backend": "naive",
            },
        },
    },
    "trainer": {"v1": {"trainer_mode": "sync"}},
}
START = """
    from vllm.a import A
    class Server:
        def __init__(self, config, model_config):
            self.config: RolloutConfig = config
            self.model_config: HFModelConfig = model_config
        @property
        def has_lora(self):
            return self.model_config.lora_rank > 0 or self.model_config.lora.get("rank", 0) > 0
        async def launch(self):
            lora_rank = self.model_config.lora.get("rank", 0)
            if lora_rank <= 0:
                lora_rank = self.model_config.lora_rank
            quantization = self.config.quantization
            if {}:
                A.gone
"""
ENGINE = """
    class Manager:
        def __init__(self, config: CheckpointEngineConfig):
            self.config = config
            self.backend = config.backend
        def abort_replicas(self):
            [replica.abort_all() for replica in self.replicas]
        def update(self):
            if self.backend == "naive":
                return
            self.abort_replicas()
"""
REGISTRY = """
    TRAINERS = {}
    def register_trainer(name):
        def inner(cls):
            TRAINERS[name] = cls
            return cls
        return inner
    def get_trainer_cls(name):
        return TRAINERS[name]
"""
SEPARATE = """
    from verl.trainer.registry import register_trainer
    @register_trainer("separate")
    class Separate:
        def on_end(self):
            self.manager.abort_replicas()
"""
MAIN = """
    from verl.trainer.registry import get_trainer_cls
    from verl.trainer.separate import Separate
    from verl.checkpoint_engine.base import Manager
    def main(config):
        trainer = get_trainer_cls(config.trainer.v1.trainer_mode)
        trainer.manager.update()
        trainer.on_end()
"""


def changed(**values: object) -> dict[str, Any]:
    """The defaults with these values, `__` for a dot."""
    tree: dict[str, Any] = {key: dict(part) for key, part in DEFAULTS.items()}
    for key, value in values.items():
        *steps, last = key.split("__")
        place = tree
        for step in steps:
            place[step] = dict(place[step])
            place = place[step]
        place[last] = value
    return tree


def breaks(
    tmp_path, server: str, settings: Settings, files: dict[str, str] | None = None, **others: str
) -> list[ApiUse]:
    pair = verl(tmp_path, server, **others), vllm(tmp_path, files or VLLM)
    found = read_trees(VllmUses, *pair, "", Surroundings(settings=settings))
    assert isinstance(found, VllmUses)
    return [use for use in found.uses if use.breaks]


LORA, QUANTIZATION = "actor_rollout_ref__model__lora_rank", "actor_rollout_ref__rollout__quantization"


@pytest.mark.parametrize(
    ("test", "values", "reached"),
    [
        ("self.config.tensor_model_parallel_size > 1", {}, True),
        ("self.config.get('tensor_model_parallel_size', 1) == 1", {}, False),
        ("self.model_config.lora_rank > 0", {}, False),
        ("self.model_config.lora_rank > 0", {LORA: 32}, True),
        ("lora_rank > 0", {LORA: 32}, True),
        ("lora_rank > 0", {}, False),
        ("self.has_lora", {LORA: 32}, True),
        ("self.has_lora and lora_loaded", {LORA: 32}, True),
        ("self.has_lora and not lora_loaded", {LORA: 32}, False),
        ("quantization == 'fp8'", {QUANTIZATION: "fp8"}, True),
        ("quantization == 'fp8'", {}, False),
        ("quantization is not None and self.unclear", {QUANTIZATION: "fp8"}, False),
        ("(getattr(self.config, 'checkpoint_engine', {}) or {}).get('backend') == 'naive'", {}, True),
        ("(self.config.get('checkpoint_engine') or {}).get('absent', False)", {}, False),
        ("self.config.nobody_knows > 1", {}, False),
        ("os.getenv('VERL_NEW', '1') == '1'", {}, True),
        ("os.getenv('VERL_SET', '0') == '1'", {}, True),
        ("'VERL_SET' in os.environ", {}, True),
        ("os.getenv('VERL_SECRET', '1') == '1'", {}, False),
        ("os.getenv('LOCAL_RANK', '0') == '0'", {}, False),
    ],
)
def test_setting_decides_whether_a_use_is_reached(tmp_path, test, values, reached):
    tree = changed(**values)
    features = switched_on({key.replace("__", "."): value for key, value in values.items()})
    given = Settings(tree, {"VERL_SET": "1"}, frozenset({"VERL_SECRET"}), True, features=features)
    (use,) = breaks(tmp_path, START.replace("{}", test), given)
    assert (use.when == "") is reached
    assert use.paths == ("async rollout",)


def test_disabled_feature_is_a_note_and_undecided_feature_a_warning(tmp_path):
    severities = {}
    for place, chosen in enumerate((True, False)):
        folder = tmp_path / str(place)
        pair = verl(folder, START.replace("{}", "self.has_lora")), vllm(folder, VLLM)
        given = Surroundings(settings=Settings(DEFAULTS, chosen=chosen))
        (found,) = run_check(vllm_attribute_missing, read_trees(VllmUses, *pair, "", given)).findings
        severities[chosen] = found.severity
    assert severities == {True: "info", False: "warning"}


@pytest.mark.parametrize(
    ("function", "values", "reached"),
    [
        ("put_linear", {QUANTIZATION: "fp8"}, True),
        ("put_linear", {}, False),
        ("put_moe", {QUANTIZATION: "fp8"}, False),
        ("put_old", {QUANTIZATION: "fp8"}, False),
        ("of_old", {QUANTIZATION: "fp8"}, False),
        ("of_linear", {QUANTIZATION: "fp8"}, True),
        ("unused", {QUANTIZATION: "fp8"}, False),
    ],
)
def test_function_of_a_part_runs_where_the_script_switches_it_on(tmp_path, function, values, reached):
    server = """
        from verl.utils.fp8 import apply
        import vllm
        class Server:
            def launch(self):
                if self.unclear:
                    apply()
    """
    part = """
        import vllm
        from vllm.a import A
        def unused(layer): ...
        def of_linear(layer): ...
        def of_old(layer): ...
        def put_linear(layer):
            of_linear(layer)
        def put_moe(layer): ...
        def put_old(layer):
            of_old(layer)
        def apply():
            patch("a.b", put_old if vllm.__version__ == "0.0.1" else put_linear)
            patch("a.c", put_moe)
        def patch(path, function): ...
    """
    features = switched_on({key.replace("__", "."): value for key, value in values.items()})
    part = part.replace(
        f"def {function}(layer):", f"def {function}(layer):\n            A.gone\n           ", 1
    )
    found = breaks(
        tmp_path, server, Settings(changed(**values), chosen=True, features=features), utils__fp8=part
    )
    assert any(not use.when and use.paths for use in found) is reached


@pytest.mark.parametrize(("values", "when"), [({}, "LoRAManager.load() is called"), ({LORA: 32}, "")])
def test_function_put_in_place_of_a_method_runs_when_the_job_has_that_part(tmp_path, values, when):
    server = """
        from vllm.a import A
        def put(owner, name, function):
            setattr(owner, name, function)
        class Server:
            def launch(self):
                def load(manager):
                    A.gone
                put(LoRAManager, "load", load)
    """
    features = switched_on({key.replace("__", "."): value for key, value in values.items()})
    (use,) = breaks(tmp_path, server, Settings(changed(**values), chosen=True, features=features))
    assert (use.paths, use.when) == (("async rollout",), when)


# As verl 0.6.1 replaces `LRUCacheWorkerLoRAManager._load_adapter`, and as later releases ask what the adapter has.
MANAGER = {
    "a.py": """
        class Model:
            size = 1
            @classmethod
            def from_tensors(cls, tensors): ...
        class Other:
            @classmethod
            def from_tensors(cls, others): ...
        class Base:
            def __init__(self, kind: type[Model] = Model, other=Other, either: type[Model] = Model):
                self.kind = kind
                self.other = other
                self.either = either
                self.model = Model()
            def swap(self):
                self.either = Other
        class LoRAManager(Base):
            def load(self, request): ...
            @staticmethod
            def make(request): ...
    """
}


@pytest.mark.parametrize(
    ("place", "line", "expected"),
    [
        ("load", "manager.kind.from_tensors(tensors=1)", []),
        ("load", "manager.kind.from_tensors(1, others=1)", [("keyword", "")]),
        ("load", "manager.other.from_tensors(tensors=1)", []),
        ("load", "manager.either.from_tensors(others=1)", []),
        ("load", "manager.gone", [("attribute", "")]),
        ("load", "manager.mine = 1; manager.mine", []),
        ("make", "manager.gone", []),
        ("load", "if manager.model.gone > request.limit: raise ValueError", [("attribute", "")]),
        ("load", "if getattr(manager.model, 'gone', 0) > 0: manager.model.gone", []),
        ("load", "if getattr(manager.model, 'size', 0) > 0: manager.model.gone", [("attribute", "getattr")]),
        ("load", "if lora.rank > lora.limit: manager.model.gone", [("attribute", "lora")]),
        ("load", "if lora.rank > 0: manager.model.gone", [("attribute", "")]),
    ],
)
def test_function_put_in_place_of_a_method_has_the_class_of_its_owner(tmp_path, place, line, expected):
    server = f"""
        from vllm.a import LoRAManager
        def put(owner, name, function):
            setattr(owner, name, function)
        class Server:
            def launch(self, lora):
                def load(manager, request):
                    {line}
                put(LoRAManager, "{place}", load)
    """
    settings = Settings(
        changed(**{LORA: 32}), chosen=True, features=switched_on({LORA.replace("__", "."): 32})
    )
    found = breaks(tmp_path, server, settings, files=MANAGER)
    assert [
        (use.kind, use.when[: len(when)]) for use, (_, when) in zip(found, expected, strict=True)
    ] == expected
    assert all(not use.when for use, (_, when) in zip(found, expected, strict=True) if not when)


@pytest.mark.parametrize(("key", "off"), [("data.seed", True), ("actor_rollout_ref.actor.qat.mode", False)])
def test_module_of_a_disabled_feature_is_left_out(tmp_path, key, off):
    server = """
        from verl.utils.qat import patch
        class Server:
            def launch(self):
                if self.unclear:
                    patch()
    """
    qat = """
        from vllm.a import A
        def patch():
            A.gone
    """
    given = Settings(DEFAULTS, chosen=True, features=switched_on({key: "w4a16"}))
    (use,) = breaks(tmp_path, server, given, utils__qat=qat)
    assert (use.paths, use.off) == (("async rollout",), off)


@pytest.mark.parametrize(
    ("values", "when"),
    [
        ({}, "self.backend != 'naive'"),
        ({"actor_rollout_ref__rollout__checkpoint_engine__backend": "nccl"}, ""),
        ({"trainer__v1__trainer_mode": "separate"}, ""),
    ],
)
def test_method_called_only_under_other_settings_is_not_reached(tmp_path, values, when):
    server = """
        from vllm.a import A
        class Server:
            async def abort_all(self):
                A.gone
    """
    others = {"checkpoint_engine__base": ENGINE, "trainer__registry": REGISTRY, "trainer__separate": SEPARATE}
    (use,) = breaks(tmp_path, server, Settings(changed(**values)), trainer__main_ppo=MAIN, **others)
    assert use.when == when


def test_megatron_uses_a_separate_weight_transfer_module(tmp_path):
    others = {
        "workers__sharding_manager__fsdp_vllm": "from vllm.a import lost",
        "workers__sharding_manager__megatron_vllm": "from vllm.a import gone",
    }
    for strategy, name in (("fsdp", "lost"), ("megatron", "gone")):
        settings = Settings(changed(actor_rollout_ref__actor__strategy=strategy))
        found = breaks(tmp_path / strategy, "from vllm.a import A", settings, **others)
        assert {use.last for use in found if use.paths} == {name}


@pytest.mark.parametrize(
    ("test", "before", "after", "same"),
    [
        ("self.config.get('quantization') == 'fp8'", None, "int8", True),
        ("self.config.get('quantization') == 'fp8'", None, "fp8", False),
        ("quantization is not None", "int8", "fp8", True),
        ("quantization is not None", "int8", None, False),
        ("quantization and self.unclear", "int8", "fp8", True),
        ("quantization and self.unclear", "int8", "", False),
        ("quantization + 'x' == self.unclear", "int8", "fp8", True),
        ("quantization + self.unclear == 'fp8x'", "int8", "fp8", True),
        ("quantization + 'x' == 'fp8x'", "int8", "int4", False),
        ("'/' in quantization", "a/b", "c/d", True),
        ("'/' in quantization", "a/b", "c", False),
        ("quantization < self.config.tensor_model_parallel_size", None, 1, False),
    ],
)
def test_only_what_decides_is_noted_as_consulted(tmp_path, test, before, after, same):
    pair = verl(tmp_path, START.replace("{}", test)), vllm(tmp_path, VLLM)
    jobs = [Settings(changed(**{QUANTIZATION: value}), chosen=True) for value in (before, after)]
    found = read_trees(VllmUses, *pair, "", Surroundings(settings=jobs[0]))
    assert isinstance(found, VllmUses)
    answers = [[job.answer(name) for name in found.consulted] for job in jobs]
    assert (answers[0] == answers[1]) is same


def test_order_of_none_depends_on_nothing_else(tmp_path):
    pair = (
        verl(tmp_path, START.replace("{}", "quantization < self.config.tensor_model_parallel_size")),
        vllm(tmp_path, VLLM),
    )
    found = read_trees(VllmUses, *pair, "", Surroundings(settings=Settings(DEFAULTS)))
    assert isinstance(found, VllmUses)
    assert not [name for name in found.consulted if "tensor_model_parallel_size" in name]


@pytest.mark.parametrize(
    ("test", "first", "second"),
    [
        (
            "os.getenv('VERL_X', '0') == '1'",
            Settings(DEFAULTS, {"VERL_X": "1"}, frozenset({"VERL_X"}), chosen=True),
            Settings(DEFAULTS, {"VERL_X": "1"}, chosen=True),
        ),
        (
            "critic_config.enable",
            Settings(DEFAULTS, chosen=True),
            Settings({**DEFAULTS, "critic": {"enable": True}}, chosen=True),
        ),
    ],
)
def test_unknown_variable_and_missing_section_are_noted(tmp_path, test, first, second):
    server = START.replace("async def launch(self)", "async def launch(self, critic_config)")
    pair = verl(tmp_path, server.replace("{}", test)), vllm(tmp_path, VLLM)
    found = read_trees(VllmUses, *pair, "", Surroundings(settings=first))
    assert isinstance(found, VllmUses)
    assert [first.answer(name) for name in found.consulted] != [
        second.answer(name) for name in found.consulted
    ]


def test_result_is_found_again_after_a_job_that_consulted_more(tmp_path):
    trees = (
        verl(tmp_path, START.replace("{}", "quantization == 'fp8' and self.config.seed > 1")),
        vllm(tmp_path, VLLM),
    )
    places = [Path(tree.folder) for tree in trees]
    read: list[Settings] = []

    def result(job: Settings) -> object:
        def anew() -> VllmUses | Unknown:
            read.append(job)
            return read_trees(VllmUses, *trees, "", Surroundings(settings=job))

        return _remembered("these trees", places, anew, Listings(), job)

    plain, eight = (Settings(changed(**{QUANTIZATION: value}), chosen=True) for value in (None, "fp8"))
    first = [result(plain), result(eight)]
    assert [result(job) for job in (eight, plain, eight)] == [first[1], first[0], first[1]]
    assert read == [plain, eight]

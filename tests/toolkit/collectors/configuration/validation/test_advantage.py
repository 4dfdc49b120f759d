"""How a trainer calls the job's estimator, and batch columns that it lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.configuration.validation.advantage import read_estimator
from verl_doctor.toolkit.sources.python.definitions import Definitions
from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.source import SourceTree

ESTIMATORS = """\
class Estimator(str, Enum):
    GAE = "gae"
    REMAX = "remax"
    TOKEN = "token_baseline"

@register_adv_est(Estimator.REMAX)
def remax(rewards, baselines, config=None, **kwargs):
    pass

@register_adv_est("rloo")
def rloo(rewards, index, config=None):
    pass

@register_adv_est(Estimator.TOKEN)
def token_baseline(rewards, squared, config=None):
    pass
"""
OLD = """\
from verl import core

def compute_advantage(data, adv_estimator, config=None):
    if adv_estimator == core.Estimator.GAE:
        return
    function = core.get_adv_estimator_fn(adv_estimator)
    kwargs = {"rewards": data.batch["rewards"], "config": config}
    if "uid" in data.non_tensor_batch:
        kwargs["index"] = data.non_tensor_batch["uid"]
    if "baselines" in data.batch.keys():
        kwargs["baselines"] = data.batch["baselines"]
    if adv_estimator in (core.Estimator.TOKEN, "token"):
        assert "squared" in data.batch, "set calculate_squared=True"
        kwargs["squared"] = data.batch["squared"]
    function(**kwargs)

class Old:
    def fit(self):
        batch["baselines"] = 1
        compute_advantage(batch)
"""
NEW = """\
from verl.old import compute_advantage
from verl.helpers import with_more

def compute_advantage_for_all(data):
    return compute_advantage(data)

class Base:
    def step(self):
        fields = ["uid", "rewards"]
        data = with_more(get(select_fields=fields))
        compute_advantage_for_all(data)

class New(Base):
    pass
"""
HELPERS = """\
def with_more(data):
    data.batch["{column}"] = 1
"""


@pytest.mark.parametrize(
    ("trainer", "name", "column", "raised"),
    [
        ("new.New", "remax", "x", "remax() missing 1 required positional argument: 'baselines'"),
        ("new.New", "remax", "baselines", ""),
        ("new.New", "rloo", "x", ""),
        ("new.New", "token_baseline", "x", "set calculate_squared=True"),
        ("new.New", "token_baseline", "squared", ""),
        ("old.Old", "remax", "x", ""),
        ("old.Old", "token_baseline", "x", ""),
    ],
)
def test_column_that_the_trainer_does_not_load_is_reported(
    tmp_path: Path, trainer: str, name: str, column: str, raised: str
) -> None:
    files = {"core": ESTIMATORS, "old": OLD, "new": NEW, "helpers": HELPERS.format(column=column)}
    for module, text in files.items():
        (tmp_path / f"{module}.py").write_text(text)
    (tmp_path / "__init__.py").touch()
    definitions = Definitions([SourceTree(tmp_path, "verl", "verl")], None, lambda *_: UNCLEAR)
    found = read_estimator(name, [f"verl.{trainer}"], tmp_path / "core.py", definitions)
    assert found is not None
    assert (found.refusal.text if found.refusal else "") == raised
    assert found.required == {"rewards", {"remax": "baselines", "rloo": "index"}.get(name, "squared")}


def test_unregistered_estimator_or_empty_trainer_is_not_judged(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("class Trainer:\n    def fit(self):\n        pass\n")
    (tmp_path / "core.py").write_text(ESTIMATORS)
    definitions = Definitions([SourceTree(tmp_path, "verl", "verl")], None, lambda *_: UNCLEAR)
    for name in ("remax", "rmax"):
        assert read_estimator(name, ["verl.Trainer"], tmp_path / "core.py", definitions) is None

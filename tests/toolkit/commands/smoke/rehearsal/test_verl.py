from __future__ import annotations

import ast
from pathlib import Path

import pytest
from support.miniatures.open_verl import FILES, open_verl

from verl_doctor.toolkit.commands.smoke.rehearsal.verl import PLUGIN, Names, offer_of


def test_verl_with_a_platform_plugin_is_supported(tmp_path: Path) -> None:
    offer = offer_of(open_verl(tmp_path))
    assert (offer.closed, offer.lacking, offer.needs_queue) == ("", (), False)


def test_verl_without_a_platform_plugin_is_unsupported(tmp_path: Path) -> None:
    offer = offer_of(open_verl(tmp_path, **{"plugin/platform/platform_base.py": ""}))
    assert "no place for a platform" in offer.closed


def test_unread_variable_makes_verl_unsupported(tmp_path: Path) -> None:
    offer = offer_of(open_verl(tmp_path, **{"workers/engine/base.py": ""}))
    assert offer.closed == "its sources do not read VERL_ENGINE_DEVICE"


def test_missing_platform_method_is_named(tmp_path: Path) -> None:
    base = FILES["plugin/platform/platform_base.py"] + "    @abc.abstractmethod\n    def fly(self): ...\n"
    assert offer_of(open_verl(tmp_path, **{"plugin/platform/platform_base.py": base})).lacking == ("fly",)


def test_queue_is_needed_if_the_trainer_imports_it(tmp_path: Path) -> None:
    assert offer_of(
        open_verl(tmp_path, **{"trainer/main_ppo.py": "def f():\n    import transfer_queue as tq\n"})
    ).needs_queue


def test_names_come_from_the_sources(tmp_path: Path) -> None:
    names = Names(open_verl(tmp_path))
    assert "enable_sleep_mode" in names
    assert "enable_flying" not in names


@pytest.mark.parametrize("path", sorted(PLUGIN.glob("*.py")), ids=lambda path: path.name)
def test_plugin_code_runs_on_the_oldest_python(path: Path) -> None:
    assert ast.parse(path.read_text("utf-8"), feature_version=(3, 10)).body

"""ATT109 repairs the settings of the given job."""

from __future__ import annotations

from verl_doctor.checks.attention.flash_attention_not_installed import flash_attention_not_installed
from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.vllm.trainer_attention import TrainerAttention
from verl_doctor.toolkit.facts import Absent

_NAME = "override_config.attn_implementation"


def test_fine_tuning_has_a_top_level_model_section() -> None:
    written = f"+model.{_NAME}=flash_attention_2"
    (there,) = configured(
        written,
        "model.use_remove_padding=False",
        tree={"model": {"override_config": {}, "use_remove_padding": True}},
    )
    lacking = TrainerAttention(
        "flash_attention_2", f"model.{_NAME}", by_default=False, needs="flash_attn", installed=False
    )
    (found,) = flash_attention_not_installed.judge(lacking, there, Absent("no script"))
    assert found.correction is not None
    assert [(change.old, change.new) for change in found.correction.rewrites] == [
        (written, f"+model.{_NAME}=sdpa")
    ]
    assert f"set +model.{_NAME}=sdpa and model.use_remove_padding=False" in found.remedy

"""ATT104 suggests no backend that rejects the model as well."""

from __future__ import annotations

from dataclasses import replace

from verl_doctor.checks.attention._attention_examples import (
    BY_OPTION,
    BY_VARIABLE,
    FLASH,
    FLASHINFER,
    TRITON_MLA,
    option,
    variable,
)
from verl_doctor.checks.attention.attention_backend_refuses_model import attention_backend_refuses_model
from verl_doctor.toolkit.collectors.model.model import BadFile, Model
from verl_doctor.toolkit.testing import run_check


def test_backend_that_rejects_the_model_is_not_suggested() -> None:
    refusing = replace(FLASHINFER, supports_head_size=False)
    backends = replace(BY_OPTION, head_size=80, backends=(FLASH, refusing, TRITON_MLA))
    model = Model("/models/phi-2", "--model", head_size=80)
    (found,) = run_check(attention_backend_refuses_model, option("FLASHINFER"), backends, model).findings
    assert found.remedy.endswith("or use FLASH_ATTN")


def test_missing_model_is_not_judged() -> None:
    gone = Model("/models/gone", "--model", bad_files=(BadFile("", "missing"),))
    result = run_check(attention_backend_refuses_model, variable("TRITON_MLA"), BY_VARIABLE, gone)
    assert (result.status, result.findings) == ("not_applicable", ())
    assert "could not be read" in result.reason

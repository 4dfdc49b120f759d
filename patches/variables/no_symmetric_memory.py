"""Fix for NET133: let vLLM reduce without symmetric memory."""

from __future__ import annotations

from verl_doctor.toolkit.change import Change, SetVariable, fix
from verl_doctor.toolkit.collectors.cuda.symmetric_memory import VARIABLE
from verl_doctor.toolkit.rule import Finding


@fix(
    "no-symmetric-memory",
    repairs="NET133",
    safety="safe",
    upstream="verl-project/verl#3791",
    restart="Ray and the job",
)
def no_symmetric_memory(_: Finding) -> list[Change]:
    """Let vLLM reduce without symmetric memory."""
    why = "each of verl's workers has one visible GPU, and symmetric memory takes them all for the same GPU"
    return [SetVariable(VARIABLE, "0", why, "verl is 0.6.1 or later, or vLLM 0.11.1 or later")]

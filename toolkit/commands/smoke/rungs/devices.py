"""Rung 2: a tensor operation on every GPU that the job sees and a Triton kernel on the first.

Without a GPU, it is one operation on the CPU.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import Any

from verl_doctor.toolkit.collectors.installed.import_path import is_on_path
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.commands.smoke.child import Ran, script
from verl_doctor.toolkit.commands.smoke.failure import failed, steps_of
from verl_doctor.toolkit.commands.smoke.rung import Outcome, Stage, Step
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.probes import smoke_tensor, triton_kernel

_LIMIT = 120.0  # seconds per child
_TOKEN = "verl-doctor kernel "  # noqa: S105 - a mark before its answer
_NO_GPU = "the kernel and the GPUs: this climb is on the CPU"


def climb(stage: Stage) -> Outcome:
    """Compute on each device, then compile and run a kernel."""
    ran = stage.run(script(stage.python, smoke_tensor, stage.device), limit=_LIMIT, name="tensor")
    if ran.code != 0:
        return failed(ran, {"": "SMOKE104"})
    steps = steps_of(ran)
    if stage.device == "cpu":
        return Outcome("passed", steps=steps, notes=(_NO_GPU,))
    interpreter = stage.facts.get(Interpreter)
    if isinstance(interpreter, Unknown) or not is_on_path("triton", interpreter.sys_path):
        return Outcome("passed", steps=steps, notes=("a Triton kernel: triton is not installed",))
    kernel = _kernel(stage)
    answer = _answer(kernel)
    steps += tuple(
        Step(f"kernel: {name}", float(seconds)) for name, seconds in answer.get("seconds", {}).items()
    )
    if kernel.code != 0 or answer.get("step"):
        outcome = failed(kernel, {"": "SMOKE105"})
        return replace(
            outcome, cause=f"{answer.get('step') or 'a Triton kernel'}: {outcome.cause}", steps=steps
        )
    if not answer.get("right"):
        return Outcome("failed", "a Triton kernel adds wrongly", code="SMOKE105", log=kernel.log, steps=steps)
    return Outcome("passed", steps=steps)


def _kernel(stage: Stage) -> Ran:
    """Run the child that `check --deep` also runs; it has a cache of its own."""
    with open(str(triton_kernel.__file__), encoding="utf-8") as file:  # noqa: PTH123
        return stage.run([stage.python, "-c", file.read(), _TOKEN], limit=_LIMIT, name="kernel")


def _answer(ran: Ran) -> dict[str, Any]:
    """Return the child's result; nothing if it has none, or was ended before it was complete."""
    _, found, rest = ran.text.rpartition(_TOKEN)
    answer = None
    with contextlib.suppress(ValueError, RecursionError):
        answer = json.loads(rest.partition("\n")[0]) if found else None
    return answer if isinstance(answer, dict) else {}

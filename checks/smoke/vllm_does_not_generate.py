"""SMOKE109: vLLM loads the model and does not generate."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.smoke._smoke import broken_by, examples_of
from verl_doctor.toolkit.collectors.smoke.run import SmokeRun
from verl_doctor.toolkit.rule import Example, Finding, check


def _examples() -> tuple[Example, ...]:
    return examples_of("SMOKE109", 4, "vLLM", "generate: EngineDeadError: EngineCore encountered an issue")


@check("SMOKE109", phase="engine", cost="slow", examples=_examples)
def vllm_does_not_generate(run: SmokeRun) -> Iterator[Finding]:
    """vLLM loads the model, but does not generate.

    ## Why it matters

    Attention and sampling kernels run for the first time when the first token is generated; FlashInfer's may
    be compiled then.

    ## How to fix

    The cause and the lines in the log name the kernel. `verl-doctor check` shows which attention backend and
    which sampler vLLM will choose here (ATT101 and following), and which variable chooses another.
    """
    yield from broken_by("SMOKE109", run)

"""SMOKE101: a module that the job imports cannot be imported."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.smoke._smoke import broken_by, examples_of
from verl_doctor.toolkit.collectors.smoke.run import SmokeRun
from verl_doctor.toolkit.rule import Example, Finding, check


def _examples() -> tuple[Example, ...]:
    return examples_of(
        "SMOKE101",
        1,
        "imports and files",
        "import vllm: ImportError: libgomp.so.1: cannot open shared object file",
    )


@check("SMOKE101", phase="import", cost="slow", examples=_examples)
def module_cannot_be_imported(run: SmokeRun) -> Iterator[Finding]:
    """A module that the job imports cannot be imported.

    ## Why it matters

    Every process of the job imports it: the driver at once, the workers after Ray has started them, half a
    minute later, with the cause in another process's log. The smoke test imports each in a separate process,
    with the target's interpreter and the job's variables.

    ## How to fix

    The cause names what is missing. If a module does not exist, install its package. If a library cannot be
    opened or a symbol is undefined, a package was built for another version of torch or CUDA: `verl-doctor
    check` shows which.
    """
    yield from broken_by("SMOKE101", run)

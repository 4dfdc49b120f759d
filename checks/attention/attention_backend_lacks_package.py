"""ATT107: the requested attention backend needs a package that is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.attention._attention_examples import BY_VARIABLE, FLASHINFER, variable
from verl_doctor.checks.shared.attention import about, language, location, remedy, written
from verl_doctor.toolkit.collectors.vllm.attention import AttentionBackends
from verl_doctor.toolkit.collectors.vllm.attention_requested import AttentionAsked
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check

_WITHOUT = replace(
    BY_VARIABLE, backends=(replace(FLASHINFER, lacks=("flashinfer",)), *BY_VARIABLE.backends[2:])
)
# Packages whose names differ from their modules.
_INSTALL = {"flashinfer": "flashinfer-python"}


def _examples() -> list[Example]:
    return [
        Example("everything is installed", (variable("FLASHINFER"), BY_VARIABLE)),
        Example("flashinfer is not installed", (variable("FLASHINFER"), _WITHOUT), "needs flashinfer"),
        Example("another backend is requested", (variable("TRITON_MLA"), _WITHOUT)),
    ]


@check("ATT107", phase="engine", requires={"ATT102"}, examples=_examples)
def attention_backend_lacks_package(
    requested: AttentionAsked, backends: AttentionBackends
) -> Iterator[Finding]:
    """The requested attention backend needs a package that is not installed.

    ## Why it matters

    When vLLM chooses a backend, it skips those whose packages are missing. A requested one is not skipped:
    `Selected backend FLASHINFER is not valid for this configuration. Reason: ['ImportError']`, without naming
    the package.

    ## How to fix

    Install the package in a release that this vLLM was built with (its metadata names one, or `verl-doctor
    check` reports the conflict), or let vLLM choose.
    """
    for place, backend in language(requested, backends):
        if backend.lacks:
            names = " and ".join(backend.lacks)
            install = " ".join(_INSTALL.get(name, name) for name in backend.lacks)
            yield Finding(
                f"{backend.name} of vLLM {backends.version} needs {names}, which is not installed",
                Evidence(written(place), f"a module {backend.lacks[0]}", backend.path),
                location=location(place),
                remedy=f"run pip install {install}; or {remedy(place, backends)}",
                subject=about(place, backend),
            )

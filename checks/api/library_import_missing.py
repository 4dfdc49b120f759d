"""API101: verl imports a name that this Ray, transformers, tensordict or SGLang does not have."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.api._api_examples import MODEL, PATHS, seen
from verl_doctor.checks.api._api_messages import missing_imports
from verl_doctor.checks.api._libraries_unjudged import libraries_unjudged
from verl_doctor.toolkit.collectors.api.uses import ApiUse, LibraryUses, every_path
from verl_doctor.toolkit.rule import Example, Finding, check

_REMOVED = ApiUse(
    path=MODEL,
    line=34,
    kind="import",
    name="transformers:AutoModelForVision2Seq",
    resolution="missing",
    phase="import",
    paths=PATHS,
    reason="transformers has no AutoModelForVision2Seq",
    read_from="/env/transformers/__init__.py",
)
_AGAIN = ApiUse(
    path="/env/verl/workers/fsdp_workers.py",
    line=289,
    kind="import",
    name=_REMOVED.name,
    resolution="missing",
    phase="start",
    paths=("trainer",),
    reason=_REMOVED.reason,
    read_from=_REMOVED.read_from,
)
_TRIED = ApiUse(
    path=MODEL,
    line=34,
    kind="import",
    name=_REMOVED.name,
    resolution="missing",
    phase="import",
    paths=PATHS,
    guard="except ImportError",
)
_ON_DEMAND = ApiUse(
    path="/env/verl/models/transformers/npu_patch.py",
    line=25,
    kind="import",
    name="transformers.modeling_utils:PretrainedConfig",
    resolution="missing",
    phase="import",
    now="transformers.configuration_utils.PretrainedConfig",
)


def _examples() -> list[Example]:
    return [
        Example("every imported name exists", seen()),
        Example("verl tries the old name, then the new one", seen(_TRIED)),
        Example(
            "a class was removed that two modules import",
            seen(_REMOVED, _AGAIN),
            expect="transformers 5.10.4 does not have: AutoModelForImageTextToText replaced it",
        ),
        Example(
            "a class has moved that only an optional part of verl imports",
            seen(_ON_DEMAND),
            expect="has it in transformers.configuration_utils",
        ),
    ]


@check("API101", paths=every_path, unjudged=libraries_unjudged, examples=_examples)
def library_import_missing(uses: LibraryUses) -> Iterator[Finding]:
    """verl imports a name that this Ray, transformers, tensordict or SGLang does not have.

    ## Why it matters

    The module raises ImportError when it is loaded, on every node, and everything that loads it fails. verl's
    trainer imports these libraries before anything else, so a job may end before its first line of output.

    ## How to fix

    If the finding names a replacement, import that. Otherwise install a release of the library for which this
    verl was written: `verl-doctor check --tree transformers=DIR` (or `ray`, `tensordict`, `sglang`) checks a
    release before you install it.
    """
    for library in uses.answers:
        yield from missing_imports(library)

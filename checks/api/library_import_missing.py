"""API101: verl imports a name that this Ray, transformers, tensordict or SGLang does not have."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.api._api_examples import MODEL, PATHS, seen
from verl_doctor.checks.api._api_messages import missing_imports
from verl_doctor.checks.api._libraries_unjudged import libraries_unjudged
from verl_doctor.toolkit.collectors.api.uses import ApiUse, LibraryUses, every_path
from verl_doctor.toolkit.rule import Example, Finding, check

_REMOVED = ApiUse(
    MODEL, 34, "import", "transformers:AutoModelForVision2Seq", "missing", "import", PATHS,
    reason="transformers has no AutoModelForVision2Seq", read_from="/env/transformers/__init__.py",
)  # fmt: skip
_AGAIN = ApiUse(
    "/env/verl/workers/fsdp_workers.py", 289, "import", _REMOVED.name, "missing", "start", ("trainer",),
    reason=_REMOVED.reason, read_from=_REMOVED.read_from,
)  # fmt: skip
_TRIED = ApiUse(MODEL, 34, "import", _REMOVED.name, "missing", "import", PATHS, guard="except ImportError")
_ON_DEMAND = ApiUse(
    "/env/verl/models/transformers/npu_patch.py", 25, "import", "transformers.modeling_utils:PretrainedConfig",
    "missing", "import", now="transformers.configuration_utils.PretrainedConfig",
)  # fmt: skip


@check(
    "API101",
    paths=every_path,
    unjudged=libraries_unjudged,
    examples=lambda: [
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
    ],
)
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

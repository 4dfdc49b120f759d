"""CUDA112: a compiled package needs symbols of a newer C or C++ library than the one that is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from verl_doctor.checks.shared.extensions import FLASH, file_name, severity
from verl_doctor.toolkit.collectors.compiled.extensions import Extension, Extensions, MissingVersion
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check
from verl_doctor.toolkit.text import listed

_SHOWN = 4
_ALSO = 10
_SYSTEM = "/lib/x86_64-linux-gnu/libstdc++.so.6"
_CONDA = "/home/me/conda/lib/libstdc++.so.6"
_TOO_OLD = MissingVersion(
    version="GLIBCXX_3.4.32",
    library="libstdc++.so.6",
    path=_CONDA,
    newest="GLIBCXX_3.4.29",
    defined_by=_SYSTEM,
)
_GLIBC = MissingVersion(
    version="GLIBC_2.38", library="libc.so.6", path="/lib/x86_64-linux-gnu/libc.so.6", newest="GLIBC_2.35"
)


def _missing(version: MissingVersion, **changes: object) -> Extensions:
    return Extensions(extensions=(replace(FLASH, missing_versions=(version,), **changes),), looked_at=1)  # type: ignore[arg-type]


def _examples() -> list[Example]:
    return [
        Example("all versions exist", (Extensions(extensions=(FLASH,), looked_at=1),)),
        Example("another file of the package is loaded instead", (_missing(_GLIBC, instead="/env/b.so"),)),
        Example(
            "an older libstdc++ comes first",
            (_missing(_TOO_OLD),),
            "GLIBCXX_3.4.32, but the loaded libstdc++.so.6 ends at GLIBCXX_3.4.29",
        ),
        Example("glibc is too old", (_missing(_GLIBC),), "GLIBC_2.38"),
    ]


@check("CUDA112", phase="import", requires={"PY100", "PY102"}, examples=_examples)
def symbol_version_missing(extensions: Extensions, packages: Packages | Unknown) -> Iterator[Finding]:
    """A compiled package needs symbols of a newer C or C++ library than the one that is loaded.

    ## Why it matters

    `version 'GLIBCXX_3.4.32' not found`: the import of the package fails. Its wheel was compiled on another
    machine or promises too much in its name, or an older libstdc++.so.6, such as that of a conda environment,
    is found before the system's.

    ## How to fix

    For libstdc++: `conda install -c conda-forge libstdcxx-ng` in a conda environment, or remove the folder of
    the older one from LD_LIBRARY_PATH. glibc cannot be replaced on a running system: use a newer image, or a
    build for this one.
    """
    bad = [
        (version, extension)
        for extension in extensions.extensions
        # Other rules report files that must be replaced anyway.
        if not (
            extension.instead or extension.problem or extension.symbols_missing or extension.missing_libraries
        )
        for version in extension.missing_versions
    ]
    bad.sort(key=lambda pair: (pair[0].path, pair[0].library))
    for (path, library), group in groupby(bad, key=lambda pair: (pair[0].path, pair[0].library)):
        pairs = list(group)
        names = list(dict.fromkeys(f"{extension.package} {extension.version}" for _, extension in pairs))
        versions = sorted({version.version for version, _ in pairs})
        missing, extension = pairs[0]
        severities = [severity(extension.package, packages) for _, extension in pairs]
        yield Finding(
            (
                f"{listed(names, _SHOWN)} {'needs' if len(names) == 1 else 'need'} "
                f"{listed(versions, _SHOWN)}, but the loaded {library} "
                f"{f'ends at {missing.newest}' if missing.newest else 'has another name'}"
            ),
            Evidence(
                found=f"{path} defines up to {missing.newest}",
                wanted=f"{listed(versions, _SHOWN)}, for {file_name(extension.path)}",
                read_from=path,
            ),
            location=Location(extension.path),
            remedy=_remedy(missing, extension),
            severity="error" if "error" in severities else "warning",
            also=tuple(
                Location(other)
                for other in dict.fromkeys(e.path for _, e in pairs)
                if other != extension.path
            )[:_ALSO],
            subject=Subject("library", path),
        )


def _remedy(missing: MissingVersion, extension: Extension) -> str:
    if missing.defined_by:
        return f"make the loader find {missing.defined_by}, which has it, before {missing.path}"
    if missing.library == "libc.so.6":
        return (
            f"run in an image with glibc {missing.version.partition('_')[2]} or newer, or build "
            f"{extension.package} here"
        )
    return (
        f"install a newer {missing.library} (conda-forge: libstdcxx-ng), or build {extension.package} on "
        "this machine"
    )

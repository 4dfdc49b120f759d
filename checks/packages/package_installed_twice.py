"""PKG105: a package is installed twice in one folder."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.packages._installed import reinstall
from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_SITE = "/env/lib/python3.11/site-packages"
_NEW = Distribution(name="numpy", version="2.2.6", location=f"{_SITE}/numpy-2.2.6.dist-info")
_OLD = Distribution(name="numpy", version="1.26.4", location=f"{_SITE}/numpy-1.26.4.dist-info")


def _examples() -> list[Example]:
    return [
        Example("each package once", (Packages((_NEW,)),)),
        Example(
            "two forms of metadata for one installation, as in Debian",
            (Packages((_NEW,), duplicates=(_NEW,)),),
        ),
        Example("two versions in one folder", (Packages((_NEW,), duplicates=(_OLD,)),), "numpy"),
    ]


@check("PKG105", severity="warning", examples=_examples)
def package_installed_twice(packages: Packages) -> Iterator[Finding]:
    """A package is installed twice in one folder.

    ## Why it matters

    Two metadata folders of one package show that an installation was interrupted, or that two installers (pip
    and conda, or two pips on a shared disk) did not notice each other. The files of both versions are mixed,
    and `importlib.metadata` may report either version, so libraries that compare versions may decide either
    way.

    ## How to fix

    Reinstall it: `pip install --force-reinstall --no-deps NAME==VERSION`, and remove the leftover metadata
    folder.
    """
    for spare in packages.duplicates:
        kept = packages.get(spare.name)
        if kept is None or kept.version == spare.version:
            continue
        yield Finding(
            f"{spare.name} is installed twice in one folder: {spare.version} and {kept.version}",
            Evidence(
                found=f"{spare.location} and {kept.location}",
                wanted="one metadata folder for each package",
            ),
            location=Location(spare.location),
            remedy=f"reinstall it: {reinstall(spare.name, kept.version, kept.installer)}, "
            f"then remove {spare.location}",
            subject=Subject("package", spare.name, spare.version),
            fix="consistent-install",
        )

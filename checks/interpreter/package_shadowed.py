"""PY112: a file or folder of yours shadows an installed package or a standard module."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.collectors.installed.shadows import Shadow, Shadows
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Location, Subject, check

_SITE = "/env/lib/python3.12/site-packages"


def _hidden(name: str, path: str) -> Shadows:
    return Shadows(folder="/home/me", modules=(Shadow(name=name, path=path, hidden=f"{_SITE}/{name}"),))


def _examples() -> list[Example]:
    return [
        Example("nothing is hidden", (Shadows("/home/me"),)),
        Example(
            "a folder of data sets with an __init__.py",
            (_hidden("datasets", "/home/me/datasets"),),
            f"/home/me/datasets is imported instead of {_SITE}/datasets",
        ),
        Example(
            "the user's own script", (_hidden("torch", "/home/me/torch.py"),), "/home/me/torch.py is imported"
        ),
    ]


@check("PY112", phase="import", examples=_examples, since="0.2")
def package_shadowed(shadows: Shadows) -> Iterator[Finding]:
    """A file or folder of yours shadows an installed package or a standard module.

    ## Why it matters
    `python -m verl...` puts the current folder first on the path. A folder `datasets` with an `__init__.py`,
    or a file `torch.py`, in it hides the installed package: `module 'datasets' has no attribute 'Dataset'`,
    in code that is correct. A file `random.py` hides Python's own module in the same way. Only what the job's
    program imports counts.

    ## How to fix
    Rename it, start the job from another folder, or set `PYTHONSAFEPATH=1` (Python 3.11) where nothing else
    of the folder is imported. A folder without `__init__.py` hides nothing.
    """
    for shadow in shadows.modules:
        yield Finding(
            f"{shadow.path} is imported instead of {shadow.hidden}",
            Evidence(
                found=shadow.path,
                wanted=shadow.hidden,
                read_from=f"{shadows.folder}, first on the job's path",
            ),
            location=Location(shadow.path),
            remedy=f"rename {shadow.path}, or start the job from another folder",
            fix="own-module-renamed",
            subject=Subject("file", shadow.path),
            stops=(EVERY_JOB,),
        )

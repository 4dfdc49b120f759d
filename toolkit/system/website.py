"""The addresses of this project's documentation, if the installed package names a site."""

from __future__ import annotations

import functools

from verl_doctor.toolkit.system.own_files import TOOLKIT

_LABEL = "documentation"


def page_of(code: str) -> str | None:
    """Return the address of a built-in rule's page; None when the package names no documentation."""
    base = documentation_site()
    return f"{base}rules/{code}.html" if base else None


@functools.cache
def documentation_site() -> str:
    """Return the project URL called Documentation, with a trailing slash; "" when there is none."""
    urls = _named_beside()
    if urls is None:
        from importlib import metadata  # noqa: PLC0415 - it loads the email package, and few commands need an address

        try:
            urls = metadata.metadata("verl-doctor").get_all("Project-URL") or []
        except metadata.PackageNotFoundError:
            return ""
    addresses = [
        address.strip()
        for label, _, address in (url.partition(",") for url in urls)
        if label.strip().lower() == _LABEL
    ]
    return f"{addresses[0].rstrip('/')}/" if addresses else ""


def _named_beside() -> list[str] | None:
    """Return the project URLs in the metadata beside the installed package.

    None if there is not exactly one such file.
    """
    files = list(TOOLKIT.parents[1].glob("verl_doctor-*.dist-info/METADATA"))
    if len(files) != 1:
        return None
    try:
        head = files[0].read_text("utf-8").partition("\n\n")[0]
    except (OSError, ValueError):
        return None
    fields = (line.partition(":") for line in head.splitlines())
    return [value.strip() for name, _, value in fields if name.lower() == "project-url"]

"""The environment that tests run in: variables of whoever starts them reach no test, except for those that are listed here."""

from __future__ import annotations

import json
import os
import time
from collections.abc import MutableMapping

KEPT = frozenset(
    {
        "CI",
        "HOME",  # until each test has its own
        "PATH",
        "PYENV_ROOT",
        "TMPDIR",
        # certificates, for what is fetched
        "CURL_CA_BUNDLE",
        "NIX_SSL_CERT_FILE",
        "REQUESTS_CA_BUNDLE",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
    }
)
KEPT_PREFIXES = ("HYPOTHESIS_", "PIP_", "PYTEST_", "UV_")
"""Settings of package indexes, and of pytest and its plugins."""
FIXED = {"LANG": "C.UTF-8"}
"""The same for everybody."""
_PROXIES = frozenset({"all_proxy", "http_proxy", "https_proxy", "no_proxy"})
_SETTINGS = "VERL_DOCTOR_TEST_"
_ASIDE = "PYTEST_PUT_ASIDE"


def is_kept(name: str) -> bool:
    """Whether tests may see a variable of whoever starts them."""
    return name in KEPT or name in FIXED or name.startswith(KEPT_PREFIXES)


def clean(environ: MutableMapping[str, str] = os.environ) -> None:
    """Drop every variable that is not kept. Proxies and the settings of these tests are put aside."""
    aside = {name: value for name, value in environ.items() if _is_for_support(name)}
    for name in [name for name in environ if not is_kept(name)]:
        del environ[name]
    environ.update(FIXED)
    if aside:
        environ[_ASIDE] = json.dumps(aside)
    if environ is os.environ:
        time.tzset()


def fetching() -> dict[str, str]:
    """The environment of a process that fetches from a package index: with the proxies, which no test may see."""
    return {**os.environ, **_aside()}


def setting(name: str, default: str) -> str:
    """A setting of these tests, whether it was put aside already or not."""
    return os.environ.get(name) or _aside().get(name, default)


def _is_for_support(name: str) -> bool:
    return name.lower() in _PROXIES or name.startswith(_SETTINGS)


def _aside() -> dict[str, str]:
    aside: dict[str, str] = json.loads(os.environ.get(_ASIDE, "{}"))
    return aside

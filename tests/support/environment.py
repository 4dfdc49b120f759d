"""Variables of tests: of the user's variables, only those listed here are kept."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, MutableMapping

KEPT: Mapping[str, str] = {
    "CI": "a test that cannot run fails there, and is skipped elsewhere (support/kept.py)",
    "HOME": "until each test has its own; what is fetched once is kept below it",
    "PATH": "where programs are found",
    "PYENV_ROOT": "where other Pythons are, for the test that queries each of them",
    "REQUESTS_CA_BUNDLE": "the certificates of the package index: for pip",
    "SSL_CERT_DIR": "the same for Python",
    "SSL_CERT_FILE": "the same for Python and uv",
    "TMPDIR": "where temporary folders are made",
}
"""The variables that tests get, and their purpose."""
KEPT_PREFIXES: Mapping[str, str] = {
    "HYPOTHESIS_": "which cases are made up",
    "PIP_": "which package index there is: the doctor reads these settings too",
    "PYTEST_": "what somebody wants of this run",
    "UV_": "as PIP_",
}
"""The same for all variables with these prefixes."""
FIXED = {"LANG": "C.UTF-8"}
"""The same for all tests."""
_FOR_FETCHING = frozenset(
    {"all_proxy", "http_proxy", "https_proxy", "no_proxy", "curl_ca_bundle", "nix_ssl_cert_file"}
)
_SETTINGS = "VERL_DOCTOR_TEST_"
_ASIDE = "PYTEST_PUT_ASIDE"


def is_kept(name: str) -> bool:
    """Return whether tests keep a variable of the user."""
    return name in KEPT or name in FIXED or name.startswith(tuple(KEPT_PREFIXES))


def clean(environ: MutableMapping[str, str] = os.environ) -> None:
    """Drop every variable that is not kept. Variables for fetching and settings of these tests are put aside."""
    aside = {name: value for name, value in environ.items() if _is_for_support(name)}
    for name in [name for name in environ if not is_kept(name)]:
        del environ[name]
    environ.update(FIXED)
    if aside:
        environ[_ASIDE] = json.dumps(aside)
    if environ is os.environ:
        time.tzset()


def fetching() -> dict[str, str]:
    """Return the environment of a process that fetches from a package index: with proxies and certificates that no test may see."""
    return {**os.environ, **_aside()}


def setting(name: str, default: str) -> str:
    """A setting of these tests, whether it was put aside already or not."""
    return os.environ.get(name) or _aside().get(name, default)


def _is_for_support(name: str) -> bool:
    return name.lower() in _FOR_FETCHING or name.startswith(_SETTINGS)


def _aside() -> dict[str, str]:
    aside: dict[str, str] = json.loads(os.environ.get(_ASIDE, "{}"))
    return aside

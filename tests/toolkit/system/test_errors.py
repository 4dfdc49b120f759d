from __future__ import annotations

import pytest

from verl_doctor.toolkit.system.errors import reason_of


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (FileNotFoundError(2, "No such file or directory", "/x"), "No such file or directory"),
        (OSError("it is not text"), "it is not text"),
        (ValueError("embedded null byte"), "embedded null byte"),
        (EOFError(), "EOFError"),
    ],
)
def test_every_error_has_a_reason(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason

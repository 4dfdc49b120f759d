"""Paths as a person would write them."""

from __future__ import annotations

import pytest

from verl_doctor.toolkit.console.paths import short


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/home/me/job/verl/x.py:7", "verl/x.py:7"),
        ("/home/me/envs/a/bin/python", "~/envs/a/bin/python"),
        ("/home/me", "~"),
        ("/home/me2/x", "/home/me2/x"),
        ("/srv/x", "/srv/x"),
        ("/etc/passwd", "/etc/passwd"),
        ("/home/me/job", "."),
        ("a sentence", "a sentence"),
        ("", ""),
    ],
)
def test_path_is_shortened(path: str, shown: str) -> None:
    assert short(path, "/home/me/job", "/home/me") == shown


def test_path_without_folder_and_home_is_unchanged() -> None:
    assert short("/a/b", "", "") == "/a/b"
    assert short("/a/b", "", "/") == "/a/b"

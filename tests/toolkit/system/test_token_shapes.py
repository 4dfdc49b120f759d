"""Tokens are masked everywhere, and similar texts are not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.tokens import FORMS, tokens

from verl_doctor.toolkit.console.masked import Mask
from verl_doctor.toolkit.logs.lines import shown_together
from verl_doctor.toolkit.system import token_shapes
from verl_doctor.toolkit.system.secret import MASK, without_secrets
from verl_doctor.toolkit.system.token_shapes import SHAPES, without_tokens

TOKENS = list(tokens())
PEM = "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    "line", ["{}", "error: bad key {} was refused", "(pid=12) got '{}',", "x={}&y=1", '{{"a": "{}"}}', "<{}>"]
)
def test_token_is_masked_in_a_line(line: str) -> None:
    for token, form in zip(TOKENS, FORMS, strict=True):
        shown = without_tokens(line.format(token), MASK)
        assert token not in shown, form
        assert not any(part in shown for part in re.findall(r"\w{16,}", token)), form
        assert MASK in shown, form


def test_every_shape_has_an_example_and_a_source() -> None:
    unseen = [
        shape.kind
        for shape in SHAPES
        if not any(re.search(shape.pattern, token) for token in TOKENS) and "SSWS " not in shape.marks
    ]
    assert unseen == []
    assert (
        without_tokens("Authorization: SSWS 00abcdefghijklmnopqrstuvwxyz", MASK) == f"Authorization: {MASK}"
    )
    text = Path(str(token_shapes.__file__)).read_text("utf-8")
    published = set(re.findall(r"^# (\w+): ", text, re.MULTILINE))
    sources = re.findall(r"^    (?:Shape\(.*)?\),  # (\w+)$", text, re.MULTILINE)
    assert len(sources) == len(SHAPES)
    assert set(sources) <= published
    assert len({shape.kind for shape in SHAPES}) >= 60


def test_every_token_contains_a_mark_of_its_shape() -> None:
    for token in TOKENS:
        for shape in SHAPES:
            if re.fullmatch(shape.pattern, token):
                assert any(mark in token for mark in shape.marks), shape.kind


def test_private_key_is_masked_line_by_line() -> None:
    body = "\n".join(f"MIIEpAIBAAKCAQEA{number}abcDEF+/{'x' * 40}" for number in range(5))
    text = f"before\n{PEM.format(body)}\nbehind"
    shown = without_secrets(text).split("\n")
    assert shown == ["before", *[MASK] * 7, "behind"]
    assert all(without_secrets(line) == MASK for line in body.split("\n"))


@pytest.mark.parametrize(
    "text",
    [
        "commit 0123456789abcdef0123456789abcdef01234567",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "/usr/conda/lib/python3/Lib/abcdefgh/Projects/checkpoints/global7/actor/huggingface",
        "basic understanding of torch.distributed",
        "sk-learn-contrib is not installed",
        "session_2026-11-22_10-11-12_123456_789/logs/worker-0123456789abcdef0123456789abcdef-01000000-12.out",
        "GPU-8c5a5c8e-1234-5678-9abc-def012345678",
        "model-00001-of-00030.safetensors",
        "Qwen/Qwen2.5-0.5B-Instruct",
        "_ZN3c106detail23torchInternalAssertFailEPKcS2_jS2_RKSs",
    ],
)
def test_similar_texts_are_kept(text: str) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize("prefix", ["", "(TaskRunner pid=12) ", "2026-11-29 12:00:00 ERROR "])
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "cut"])
def test_private_key_is_masked_in_lines_that_are_shown_one_by_one(prefix: str, whole: bool) -> None:
    body = [
        "MIIEowIBAAKCAQEAxGvWZ0b7m1jQkq7d3vJ8hFYp2lq9s0aT4uXcRnE5wBzK6oPi",
        "x" * 64,
    ]  # nothing marks these as a key's
    end = ["-----END RSA PRIVATE KEY-----"] if whole else []
    lines = [prefix + line for line in ("before", "-----BEGIN RSA PRIVATE KEY-----", *body, *end)]
    for shown in (shown_together(lines), Mask().document(lines), list(Mask().document((7, *lines)))[1:]):
        assert len(shown) == len(lines)
        assert shown[0] == lines[0]
        assert not [line for line in body if any(line in text for text in shown)]

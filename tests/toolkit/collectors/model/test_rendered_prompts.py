"""What a chat template makes of prompts: a refusal of all, or the fewest tokens that each has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from verl_doctor.toolkit.probes import rendered

PLAIN = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"
JOINS = "{% for m in messages %}{{ '<' + m['role'] + '>' + m['content'] }}{% endfor %}"
NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
ALTERNATE = "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}"
USER, SYSTEM = {"role": "user", "content": "two and two"}, {"role": "system", "content": "be good"}
VOCABULARY = dict.fromkeys("abcdefghijklmnopqrstuvwxyz<>Ġ", 0) | {"two": 0, "Ġand": 0}


def tokenizer(**parts: Any) -> dict[str, Any]:
    return {
        "model": {"type": "BPE", "vocab": VOCABULARY},
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "behavior": "Isolated"}, {"type": "ByteLevel"}]},
        "added_tokens": [{"content": "<user>", "lstrip": False, "rstrip": False}],
        **parts,
    }  # fmt: skip


def examined(tmp_path: Path, rows: list[Any], template: str, limit: int = 0, *, retries: bool = True, **parts: Any) -> Any:  # fmt: skip
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(tokenizer(**parts)), "utf-8")
    spec = {"template": template, "names": {}, "tokenizer": str(file), "limit": limit, "column": "prompt", "retries": retries, "files": []}  # fmt: skip
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rendered, "prompts", lambda *_: iter(rows))
        return rendered.examined(spec)


@pytest.mark.parametrize(
    ("rows", "template", "retries", "message"),
    [
        ([[SYSTEM, USER]], NO_SYSTEM + JOINS, True, "no system role"),
        ([[SYSTEM, USER]], NO_SYSTEM + PLAIN, True, ""),  # verl's second attempt succeeds
        ([[SYSTEM, USER]], NO_SYSTEM + PLAIN, False, "no system role"),
        ([[SYSTEM, USER]], ALTERNATE + PLAIN, True, ""),  # as does this one: the roles then alternate
        ([[USER, USER]], ALTERNATE + PLAIN, True, "roles must alternate"),
        ([[SYSTEM, USER], [USER]], NO_SYSTEM + JOINS, True, ""),
        ([[USER]], NO_SYSTEM + JOINS, True, ""),
        ([[SYSTEM, USER]], "{{ messages[0].content.nothing.more }}", True, None),
    ],
)
def test_template_that_refuses_all_prompts(tmp_path: Path, rows: list[Any], template: str, message: str | None, *, retries: bool) -> None:  # fmt: skip
    if message is None:
        with pytest.raises(Exception, match="has no attribute"):
            examined(tmp_path, rows, template, retries=retries)
        return
    assert examined(tmp_path, rows, template, retries=retries).get("refused", "") == message


@pytest.mark.parametrize(
    ("rows", "limit", "parts", "shortest"),
    [
        ([[USER]], 8, {}, 8),  # <user> two Ġand Ġ two < a >
        ([[USER]], 9, {}, None),
        ([[USER], [USER, USER]], 8, {}, 8),
        ([[{"role": "user", "content": "zwölf"}]], 1, {}, None),
        ([[{"role": "user", "content": "TWO"}]], 1, {}, None),
        ([[USER]], 1, {"normalizer": {"type": "Lowercase"}}, None),
        ([[USER]], 1, {"pre_tokenizer": {"type": "WhitespaceSplit"}}, None),
        ([[USER]], 1, {"added_tokens": [{"content": "<user>", "rstrip": True}]}, None),
        ([[USER]], 1, {"model": {"type": "Unigram", "vocab": []}}, None),
    ],
)
def test_fewest_tokens_of_all_prompts(tmp_path: Path, rows: list[Any], limit: int, parts: Any, shortest: int | None) -> None:  # fmt: skip
    assert examined(tmp_path, rows, PLAIN, limit, **parts).get("shortest") == shortest


def test_rows_beyond_the_first_are_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendered, "MOST_ROWS", 2)
    assert examined(tmp_path, [[SYSTEM]] * 3, NO_SYSTEM + JOINS) == {"rows": 2, "refused": "no system role", "whole": False}  # fmt: skip
    assert examined(tmp_path, [[USER]] * 3, PLAIN, 8) == {}

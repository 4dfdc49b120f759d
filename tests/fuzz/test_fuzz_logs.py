"""Damaged logs: every result is safe for a terminal in all formats, in time linear in the size."""

from __future__ import annotations

import gzip
import json
import random
import sys
import unicodedata
from pathlib import Path

import jsonschema
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from fuzz.mutate import mutant
from support.logs.builder import DRIVER_SAW_IT, ENGINE, NOISE, OTHERS_WAITED, RANK, RAY, told_by
from support.logs.variants import VARIANTS

from verl_doctor.toolkit.commands.explain.schemas import schema_text
from verl_doctor.toolkit.commands.logs import render
from verl_doctor.toolkit.logs.document import document
from verl_doctor.toolkit.logs.reading import diagnose
from verl_doctor.toolkit.logs.signature import signatures
from verl_doctor.toolkit.logs.sources import Source

SAMPLES = [
    *(
        told_by(log, prefix).encode()
        for (_, log), prefix in zip(VARIANTS[::9], [RAY, RANK, ENGINE] * 9, strict=False)
    ),
    (NOISE + OTHERS_WAITED + DRIVER_SAW_IT).encode(),
    ("\r".join(f"step {at}: {at}%" for at in range(400)) + "\n").encode() * 3,
    told_by("OSError: [Errno 24] Too many open files", RAY).encode("utf-16"),
    gzip.compress(told_by("OSError: [Errno 28] No space left on device").encode()),
    json.dumps({"log": f"{RAY}ValueError: no", "stream": "stderr"}).encode() + b"\n",
    b'{"message": ' * 500,
    b"\x1b[31m" * 4000 + b"Error: x\n",
    b"[rank1]: " * 400 + b"\n",
    b"\x28\xb5\x2f\xfd" + bytes(200),
]
pytestmark = pytest.mark.slow
SCHEMA = jsonschema.Draft202012Validator(json.loads(schema_text("logs")))


@pytest.mark.parametrize("round_", range(12))
def test_damaged_logs_are_read_without_a_crash(tmp_path: Path, round_: int) -> None:
    for number in range(25):
        seed = round_ * 1000 + number
        content = mutant(SAMPLES, seed)
        path = tmp_path / "run.log"
        path.write_bytes(content)
        answer = diagnose([Source("run.log", path)])
        rows = [str(line) for line in render.text_lines(answer, 80)]
        rows += render.markdown_lines(answer)
        shown = "\n".join(rows)
        assert all(sign in "\n\t" or unicodedata.category(sign) not in {"Cc", "Cs"} for sign in shown), seed
        SCHEMA.validate(json.loads(json.dumps(document(answer))))


def test_nearly_matching_lines_are_read_in_linear_time() -> None:
    """Every part of a pattern is repeated and the last is missing: backtracking would not end."""
    chance = random.Random(7)
    for signature in chance.sample(signatures(), 40):
        for parts in signature.patterns:
            words = [part if isinstance(part, str) else f"{part.before}9" for part in parts]
            line = "".join(word * 200 for word in words[:-1]) + "x"
            assert signature.matches([line[:20_000]]) in {True, False}

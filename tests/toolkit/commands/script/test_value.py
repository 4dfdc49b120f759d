"""Values of variants survive a round trip."""

from __future__ import annotations

import shlex

from hypothesis import given
from hypothesis import strategies as st

from verl_doctor.toolkit.commands.script.value import override
from verl_doctor.toolkit.commands.script.variant import ValueChange
from verl_doctor.toolkit.sources.hydra.grammar import parse_override

TEXTS = st.text(st.sampled_from("ab'\"\\ ,:=[]{}()$é/.-"), max_size=12)


@given(TEXTS.filter(lambda text: "$" not in text))
def test_text_survives_a_round_trip(text: str) -> None:
    (word,) = shlex.split(override(ValueChange("data.train_files", text, "why"), nested=False))
    assert parse_override(word).value == text


@given(st.lists(TEXTS.filter(lambda text: "$" not in text), max_size=3))
def test_list_elements_survive_a_round_trip(texts: list[str]) -> None:
    (word,) = shlex.split(override(ValueChange("trainer.logger", texts, "why"), nested=False))
    assert parse_override(word).value == texts

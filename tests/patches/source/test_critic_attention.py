"""The repair of ATT109 where verl names the critic's attention itself: its configuration names it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from verl_doctor.patches.source.critic_attention import critic_attention
from verl_doctor.toolkit.change import Refusal, ReplaceFile
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Evidence, Finding, Location

SOURCE = """\
def load_valuehead_model(local_path, torch_dtype, model_config, trust_remote_code):
    try:
        return Classifier.from_pretrained(
            local_path,
            config=model_config,
            attn_implementation="flash_attention_2",
        )
    except BaseException:
        pass
    return Model.from_pretrained(local_path, config=model_config, attn_implementation="flash_attention_2")


def other(model_config):
    return Classifier.from_pretrained("x", attn_implementation="flash_attention_2")
"""


def planned(folder: Path, source: str) -> list[Any] | Refusal:
    path = folder / "model.py"
    path.write_text(source)
    finding = Finding("fixed", Evidence("x"), Location(str(path), 6), fix="critic-attention")
    return critic_attention.plan(finding, sources=SourceFiles(), marker=Marker("1.0"))


def test_edited_loader_reads_the_configuration(tmp_path: Path) -> None:
    (change,) = planned(tmp_path, SOURCE)
    assert isinstance(change, ReplaceFile)
    text = change.after.decode()
    assert text.count(Marker("1.0").comment("ATT109")) >= 2
    assert text.partition("def other")[2] == SOURCE.partition("def other")[2]

    class Classifier:
        @staticmethod
        def from_pretrained(path: str, **arguments: Any) -> object:
            if arguments["attn_implementation"] == "broken":
                raise ImportError("it is not installed")
            return arguments["attn_implementation"]

    class Model:
        @staticmethod
        def from_pretrained(path: str, **arguments: Any) -> object:
            return ("model", arguments["attn_implementation"])

    names: dict[str, Any] = {"Classifier": Classifier, "Model": Model}
    exec(text, names)
    load = names["load_valuehead_model"]
    assert load("m", None, SimpleNamespace(_attn_implementation="sdpa"), False) == "sdpa"
    assert load("m", None, SimpleNamespace(_attn_implementation=None), False) == "flash_attention_2"
    assert load("m", None, SimpleNamespace(), False) == "flash_attention_2"
    assert load("m", None, SimpleNamespace(_attn_implementation="broken"), False) == ("model", "broken")


def test_loader_that_reads_the_configuration_already_is_refused(tmp_path: Path) -> None:
    refused = planned(tmp_path, SOURCE.replace('"flash_attention_2"', "model_config.attention"))
    assert isinstance(refused, Refusal)
    assert "has changed since it was read" in refused.reason

"""Two releases of verl: what follows from the release is folded, and what stops the job has its cause."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from support.machine_facts import edited, machine

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.engines import ChosenEngines, Engine
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.packages.requirements import requirements
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.commands.compare.render import text_lines
from verl_doctor.toolkit.comparison.cause import _release_of
from verl_doctor.toolkit.comparison.comparison import Difference
from verl_doctor.toolkit.comparison.document import document
from verl_doctor.toolkit.comparison.judge import Comparison, compared
from verl_doctor.toolkit.rule import Evidence, Finding, Subject
from verl_doctor.toolkit.snapshot.snapshot import Snapshot

from .test_judge import run

FACTS = machine("h200-with-job")
NAME = "VERL_FULL_DETERMINISM"


def side(
    verl: str, *requires: str, without: tuple[str, ...] = (), numpy: str = "2.3.5", **keys: Any
) -> Mapping[type, Any]:
    """The recorded machine with this verl, without some packages, with further settings."""
    packages = FACTS[Packages]
    others = [
        entry
        for entry in packages.distributions
        if entry.name not in {"verl", "numpy", "mistral-common", *without}
    ]
    here = {entry.name: entry for entry in packages.distributions}
    installed = replace(
        packages,
        distributions=(
            *others,
            replace(here["ray"], name="verl", version=verl, requires=requires),
            replace(here["numpy"], version=numpy),
        ),
    )
    imported = replace(FACTS[VerlTrees].imported, version=verl)
    configuration = FACTS[Configuration]
    engine = Engine(
        key="actor_rollout_ref.rollout.name",
        name="vllm",
        title="vLLM",
        module="vllm",
        installed="vllm" not in without,
    )
    return {
        **FACTS,
        Packages: installed,
        type(met := requirements.collect(installed)): met,
        VerlTrees: replace(FACTS[VerlTrees], imported=imported),
        Configuration: replace(configuration, after={**configuration.after, **keys}),
        ChosenEngines: ChosenEngines((engine,)),
    }


def between(old: Mapping[type, Any], new: Mapping[type, Any]) -> Comparison:
    return compared(Snapshot(old), Snapshot(new), run())


def test_settings_of_one_release_are_folded_without_advice() -> None:
    found = between(side("0.9.1", v1={"a": 1, "b": 2}, both=1), side("0.8.0", old={"c": 3}, both=2))
    settings = [entry for entry in found.of("matters") if entry.kind == "configuration"]
    folded, changed = sorted(settings, key=lambda entry: entry.subject)
    assert folded.summary == "3 settings differ because verl 0.9.1 -> 0.8.0"
    assert (folded.folded, folded.next) == (("v1.a", "v1.b", "old.c"), "")
    assert changed.next == "add both=1 to the launch command"
    text = "\n".join(line.plain for line in text_lines(found, None, every=True))
    assert folded.summary in text
    assert "v1.a" not in text
    assert "v1.a" in json.dumps(document(found)["differences"])


def test_settings_of_equal_releases_are_the_users() -> None:
    found = between(side("0.9.1", mine={"a": 1}), side("0.9.1"))
    (lost,) = [entry for entry in found.of("matters") if entry.kind == "configuration"]
    assert (lost.subject, lost.summary, lost.next) == ("mine.a", "", "add mine.a=1 to the launch command")


def test_setting_that_only_the_other_release_has_is_blamed_on_the_release() -> None:
    verl = Difference("package", "verl", "0.9.1", "0.8.0")
    folded = Difference("configuration", "1 setting", "0.9.1", "0.8.0", folded=("trainer.v1.mode",))
    unknown = Finding("", Evidence(""), subject=Subject("setting", "trainer.v1.mode"))
    assert _release_of(unknown, [folded, verl]) is verl
    other = Finding("", Evidence(""), subject=Subject("setting", "trainer.nnodes"))
    assert _release_of(other, [folded, verl]) is None


def test_requirement_that_the_old_release_of_a_package_violates_too_is_not_blamed_on_it() -> None:
    found = between(side("0.9.1", "numpy"), side("0.8.0", "numpy<2.0.0", numpy="2.4.6"))
    by_subject = {entry.subject: entry.codes for entry in found.differences if entry.kind == "package"}
    assert by_subject == {"verl": ("PKG101",), "numpy": ()}
    found = between(side("0.9.1", "numpy<2.4"), side("0.9.1", "numpy<2.4", numpy="2.4.6"))
    assert [entry.subject for entry in found.differences if "PKG101" in entry.codes] == ["numpy"]


def test_missing_packages_stop_the_job_together() -> None:
    requires = ("torch", "ray", "numpy")
    found = between(side("0.9.1", *requires), side("0.9.1", *requires, without=("torch", "ray")))
    missing = [entry for entry in found.of("breaks") if entry.codes == ("PKG101",)]
    assert {entry.subject for entry in missing} == {"torch", "ray"}
    assert {entry.next for entry in missing} == {f"verl-doctor fix --select PKG101 --python {sys.executable}"}
    lines = [line.plain for line in text_lines(found, None, every=False)]
    assert sum("2 packages are not installed: torch" in line for line in lines) == 1


def test_missing_engine_that_the_settings_choose_stops_the_job() -> None:
    found = between(side("0.9.1"), side("0.9.1", without=("vllm",)))
    (vllm,) = [entry for entry in found.differences if (entry.kind, entry.subject) == ("package", "vllm")]
    assert vllm.weight == "breaks"


@pytest.mark.parametrize(("in_shell", "advice"), [(False, ""), (True, "export VERL_FULL_DETERMINISM=0")])
def test_variable_that_verl_sets_is_never_advised(*, in_shell: bool, advice: str) -> None:
    def without(fact: Any) -> Any:
        return replace(fact, values={key: text for key, text in fact.values.items() if key != NAME})

    def with_it(fact: Any) -> Any:
        return replace(fact, values={**fact.values, NAME: "0"})

    old = edited(FACTS, {JobVariables: with_it, Variables: with_it if in_shell else without})
    found = between(old, edited(old, {JobVariables: without, Variables: without}))
    (lost,) = [entry for entry in found.differences if entry.subject == NAME]
    assert lost.next == advice

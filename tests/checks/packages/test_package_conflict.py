"""Which conflicts are reported, with which severity and in which order."""

from __future__ import annotations

from verl_doctor.checks.packages.package_conflict import package_conflict
from verl_doctor.toolkit.collectors.packages.requirements import Requirements, Unmet
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.testing import run_check


def judged(*unmet: Unmet, unreadable: tuple[str, ...] = ()) -> list[Finding]:
    return list(run_check(package_conflict, Requirements(("verl",), ("verl",), unmet, unreadable)).findings)


def wrong(by: str, name: str, *, there: str = "1", wanted: str = ">=2", extra: str = "") -> Unmet:
    return Unmet(by, "9", name, wanted, there, extra)


def missing(name: str, *, by: str = "verl", extra: str = "") -> Unmet:
    return Unmet(by, "9", name, "", "", extra)


def test_conflict_checked_by_transformers_at_import_is_an_error() -> None:
    (finding,) = judged(wrong("transformers", "tokenizers"))
    assert (finding.severity, finding.fix) == ("error", "consistent-install")
    assert "checks this version at import and stops" in finding.message


def test_conflict_only_in_metadata_is_a_warning() -> None:
    (finding,) = judged(wrong("peft", "transformers"))
    assert finding.severity == "warning"


def test_vllm_with_another_torch_is_an_error() -> None:
    assert [f.severity for f in judged(wrong("vllm", "torch"))] == ["error"]


def test_vllm_bounds_of_verl_are_a_warning() -> None:
    (finding,) = judged(wrong("verl", "vllm", extra="vllm"))
    assert (finding.severity, finding.fix) == ("warning", None)


def test_conflicting_requirements_of_one_package_share_a_finding() -> None:
    (finding,) = judged(wrong("a", "numpy"), wrong("b", "numpy", wanted="<3"))
    assert finding.message == "numpy 1 is installed, but a 9 requires >=2; b 9 requires <3"


def test_fatal_conflicts_come_first_and_minor_ones_are_folded() -> None:
    findings = judged(
        wrong("a", "x"), wrong("b", "y"), wrong("a", "ray"), wrong("transformers", "tokenizers")
    )
    assert [finding.message.split()[0] for finding in findings] == ["tokenizers", "ray", "2"]
    assert [finding.fix for finding in findings] == ["consistent-install", None, None]


def test_requirements_of_a_package_to_be_replaced_are_not_reported() -> None:
    findings = judged(
        wrong("transformers", "tokenizers"), wrong("tokenizers", "huggingface-hub", wanted="<1")
    )
    assert [finding.message.split()[0] for finding in findings] == ["tokenizers"]


def test_many_missing_packages_are_one_finding() -> None:
    (finding,) = judged(*(missing(f"package{number}") for number in range(79)), missing("torch"))
    assert finding.message.startswith("80 required packages are not installed: torch, package0")
    assert finding.message.endswith("and 72 more")
    assert finding.severity == "error"


def test_small_missing_packages_are_a_warning() -> None:
    assert [finding.severity for finding in judged(missing("dill"))] == ["warning"]


def test_package_missing_only_for_an_extra_is_information() -> None:
    assert [finding.severity for finding in judged(missing("mbridge", extra="vllm"))] == ["info"]


def test_extra_without_an_engine_is_not_reported() -> None:
    assert judged(wrong("verl", "trl", extra="trl")) == []


def test_queue_required_by_several_extras_is_reported_once() -> None:
    queue = [missing("transferqueue", extra=engine) for engine in ("vllm", "sglang")]
    (finding,) = judged(*queue)
    assert (finding.severity, finding.fix) == ("error", "consistent-install")
    assert finding.message == "1 required package is not installed: transferqueue"


def test_only_finding_is_not_called_further() -> None:
    (finding,) = judged(wrong("verl", "transferqueue", there="0.1.8", wanted=">=0.1.10", extra="vllm"))
    assert finding.message == "1 requirement is not met: verl 9 requires transferqueue>=0.1.10, not 0.1.8"
    assert finding.evidence.wanted == "transferqueue>=0.1.10"
    further = judged(wrong("a", "ray"), wrong("a", "x"))[1]
    assert further.message.startswith("1 further requirement is not met")


def test_minor_conflicts_are_folded_into_one_note() -> None:
    (finding,) = judged(
        wrong("vllm", "opentelemetry-api"),
        wrong("vllm", "opentelemetry-sdk"),
        missing("torchaudio", by="vllm"),
    )
    assert (finding.severity, finding.message[:11]) == ("info", "3 conflicts")


def test_requirement_of_torch_is_never_minor() -> None:
    (finding,) = judged(missing("triton", by="torch"))
    assert finding.severity == "warning"


def test_unreadable_requirement_is_a_note() -> None:
    (finding,) = judged(unreadable=("verl: a b c",))
    assert finding.severity == "info"

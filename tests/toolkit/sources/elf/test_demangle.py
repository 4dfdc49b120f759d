"""Mangled names: their subject, and their demangled form."""

from __future__ import annotations

import pytest

from verl_doctor.toolkit.machine import Machine, Output
from verl_doctor.toolkit.sources.elf.demangle import demangled, is_same_name, qualified_prefix


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("_ZN3c104cuda9SetDeviceEab", "_ZN3c104cuda9SetDevice"),
        ("_ZN3c105ErrorC2ENS_14SourceLocationESs", "_ZN3c105ErrorC2"),
        ("_ZNK3c106SymInt22maybe_as_int_slow_pathEv", "_ZNK3c106SymInt22maybe_as_int_slow_path"),
        ("_ZNR5torch7Library4_defEON3c1014FunctionSchemaE", "_ZNR5torch7Library4_def"),
        ("_ZN2at6Tensor8data_ptrIfEEPT_v", "_ZN2at6Tensor8data_ptr"),
        ("_Z3addii", "_Z3add"),
        ("ncclCommInitRank", ""),
        ("_ZTVN3c105ErrorE", ""),
        ("_ZN", ""),
        ("_ZN9999x", ""),
        ("", ""),
    ],
)
def test_prefix_of_a_symbol_excludes_its_parameters(name: str, prefix: str) -> None:
    assert qualified_prefix(name) == prefix


def test_longer_name_is_a_different_one() -> None:
    assert is_same_name("_ZN3c104cuda9SetDevice", "_ZN3c104cuda9SetDeviceEa")
    assert is_same_name("_ZN3c104name", "_ZN3c104nameB5cxx11Ev")
    assert not is_same_name("_ZN3c104cuda", "_ZN3c104cuda9SetDeviceEa")


def test_symbols_are_demangled() -> None:
    assert demangled(Machine(), ["_ZN3c105ErrorC2ENS_14SourceLocationESs", "ncclCommInitRank", "_ZN"]) == {
        "_ZN3c105ErrorC2ENS_14SourceLocationESs": "c10::Error::Error(c10::SourceLocation, std::string)",
        "ncclCommInitRank": "ncclCommInitRank",
        "_ZN": "_ZN",
    }


def test_names_are_unchanged_without_a_resolver() -> None:
    machine = Machine(runner=lambda argv, environ, timeout: Output(1, "", "no such library", 0.0))
    assert demangled(machine, ["_Z1av"]) == {"_Z1av": "_Z1av"}
    assert demangled(machine, []) == {}

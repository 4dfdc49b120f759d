"""The loader's search order, on small recorded machines and compared with the real loader."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.elf_files import AARCH64, LOADER, cache, elf, place

from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.elf.loader import Loader, NoSuchLoader, Requirer

NAME = "libx.so.1"
PYTHON = "/env/bin/python"
LIBRARY = elf(soname=NAME)
V3 = "cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3 abm avx avx2 bmi1 bmi2 f16c fma movbe xsave"


def machine(
    root: Path,
    *folders: str,
    program: bytes = elf(interpreter=LOADER),
    search: str | None = None,
    **environ: str,
) -> Machine:
    """A machine with a program, and the library in each of these folders."""
    place(root, PYTHON, program)
    for folder in folders:
        place(root, f"{folder}/{NAME}", LIBRARY)
    if search is not None:
        environ["LD_LIBRARY_PATH"] = search
    return Machine(environ=environ, cwd=Path("/job"), root=root)


def taken(machine: Machine, soname: str = NAME, *requirers: Requirer) -> tuple[str, str] | None:
    found = Loader(machine, PYTHON).find(soname, requirers)
    return (found.path, found.how) if found else None


def test_search_order_is_that_of_the_loader(tmp_path: Path) -> None:
    program = elf(interpreter=LOADER, rpath="$ORIGIN/../lib")
    here = machine(tmp_path, "/env/lib", "/a", "/run", "/cached", "/lib64", program=program, search="/a")
    place(tmp_path, "/etc/ld.so.cache", cache([(NAME, f"/cached/{NAME}")]))
    requirer = Requirer("/run/caller.so", runpath="$ORIGIN")
    seen = []
    for gone in ("/env/lib", "/a", "/cached", "/lib64"):
        seen.append(taken(here))
        (tmp_path / gone.lstrip("/") / NAME).unlink()
    assert seen == [
        (f"/env/lib/{NAME}", "RPATH"),
        (f"/a/{NAME}", "LD_LIBRARY_PATH"),
        (f"/cached/{NAME}", "ld.so.cache"),
        (f"/lib64/{NAME}", "default folder"),
    ]
    assert taken(here) is None
    assert taken(here, NAME, requirer) == (f"/run/{NAME}", "RUNPATH")


def test_all_matches_are_listed_in_order(tmp_path: Path) -> None:
    here = machine(tmp_path, "/a", "/b", "/lib64", search="/b:/a")
    assert [found.path for found in Loader(here, PYTHON).all(NAME)] == [
        f"{folder}/{NAME}" for folder in ("/b", "/a", "/lib64")
    ]


def test_rpath_is_ignored_next_to_a_runpath(tmp_path: Path) -> None:
    program = elf(interpreter=LOADER, rpath="/a", runpath="/b")
    assert taken(machine(tmp_path, "/a", "/b", program=program)) == (f"/b/{NAME}", "RUNPATH")


def test_rpaths_of_requiring_libraries_are_inherited_and_runpaths_are_not(tmp_path: Path) -> None:
    here = machine(tmp_path, "/a", "/b", program=elf(interpreter=LOADER, rpath="/b"))
    inner, outer = Requirer("/i.so"), Requirer("/o.so", rpath="/a")
    assert taken(here, NAME, inner, outer) == (f"/a/{NAME}", "RPATH")
    assert taken(here, NAME, inner, Requirer("/o.so", runpath="/a")) == (f"/b/{NAME}", "RPATH")
    assert taken(here, NAME, Requirer("/i.so", runpath="/nowhere"), outer) is None


def test_empty_entry_is_the_current_folder_and_an_empty_value_is_none(tmp_path: Path) -> None:
    here = machine(tmp_path, "/job", search="/a:")
    assert taken(here) == (f"/job/{NAME}", "LD_LIBRARY_PATH")
    assert taken(machine(tmp_path / "other", "/job", search="")) is None


def test_semicolons_separate_entries(tmp_path: Path) -> None:
    assert taken(machine(tmp_path, "/b", search="/a;/b")) == (f"/b/{NAME}", "LD_LIBRARY_PATH")


@pytest.mark.parametrize(
    ("content", "trouble"),
    [
        (elf(machine=AARCH64), "for another processor"),
        (elf(bits=32), "for another processor"),
        ("/gone", "dangling link"),
    ],
)
def test_unloadable_files_are_skipped(tmp_path: Path, content: bytes | str, trouble: str) -> None:
    here = machine(tmp_path, "/b", search="/a:/b")
    place(tmp_path, f"/a/{NAME}", content)
    assert [found.trouble for found in Loader(here, PYTHON).all(NAME)] == [trouble, ""]
    assert taken(here) == (f"/b/{NAME}", "LD_LIBRARY_PATH")


@pytest.mark.parametrize("content", [b"", b"/* GNU ld script */", b"\x7fELF", LIBRARY[:120]])
def test_invalid_library_ends_the_search(tmp_path: Path, content: bytes) -> None:
    here = machine(tmp_path, "/b", search="/a:/b")
    place(tmp_path, f"/a/{NAME}", content)
    assert taken(here) is None


def test_links_are_resolved_below_the_root(tmp_path: Path) -> None:
    here = machine(tmp_path, "/real", search="/a")
    place(tmp_path, f"/a/{NAME}", f"../alternatives/{NAME}")
    place(tmp_path, f"/alternatives/{NAME}", f"/real/{NAME}")
    assert taken(here) == (f"/a/{NAME}", "LD_LIBRARY_PATH")
    assert here.real(f"/a/{NAME}") == f"/real/{NAME}"


def test_circular_link_ends(tmp_path: Path) -> None:
    here = machine(tmp_path, search="/a")
    place(tmp_path, f"/a/{NAME}", f"/b/{NAME}")
    place(tmp_path, f"/b/{NAME}", f"/a/{NAME}")
    assert taken(here) is None


def test_folder_of_the_same_name_is_skipped(tmp_path: Path) -> None:
    here = machine(tmp_path, "/b", search="/a:/b")
    (tmp_path / "a" / NAME).mkdir(parents=True)
    assert taken(here) == (f"/b/{NAME}", "LD_LIBRARY_PATH")


def test_only_the_first_cache_entry_counts(tmp_path: Path) -> None:
    here = machine(tmp_path, "/second")
    place(tmp_path, "/etc/ld.so.cache", cache([(NAME, f"/first/{NAME}"), (NAME, f"/second/{NAME}")]))
    assert taken(here) is None
    assert [entry.path for entry in Loader(here, PYTHON).cached(NAME)] == [
        f"/first/{NAME}",
        f"/second/{NAME}",
    ]


@pytest.mark.parametrize(("flags", "folder"), [(V3, "/v3"), ("sse2", "/any")])
def test_cache_entries_for_newer_processors_are_used(tmp_path: Path, flags: str, folder: str) -> None:
    here = machine(tmp_path, "/v4", "/v3", "/any")
    levels = ("x86-64-v4", "x86-64-v3")
    entries = [(NAME, f"/v4/{NAME}", 0), (NAME, f"/v3/{NAME}", 1), (NAME, f"/any/{NAME}")]
    place(tmp_path, "/etc/ld.so.cache", cache(entries, levels))
    place(tmp_path, "/proc/cpuinfo", f"processor: 0\nflags\t\t: {flags}\n".encode())
    assert taken(here) == (f"{folder}/{NAME}", "ld.so.cache")


def test_subfolders_for_newer_processors_come_first(tmp_path: Path) -> None:
    here = machine(tmp_path, "/a", "/a/glibc-hwcaps/x86-64-v3", search="/a")
    assert taken(here) == (f"/a/{NAME}", "LD_LIBRARY_PATH")
    place(tmp_path, "/proc/cpuinfo", f"flags : {V3}\n".encode())
    assert taken(here) == (f"/a/glibc-hwcaps/x86-64-v3/{NAME}", "LD_LIBRARY_PATH")


def test_default_folders_are_read_from_the_loader(tmp_path: Path) -> None:
    here = machine(tmp_path, "/store/lib", "/lib64")
    place(tmp_path, LOADER, b"\x7fELF\0/etc/ld.so.cache\0/store/lib/\0more\0")
    assert Loader(here, PYTHON).default_folders == ("/store/lib",)
    assert taken(here) == (f"/store/lib/{NAME}", "default folder")


def test_default_folders_without_the_loader(tmp_path: Path) -> None:
    (tmp_path / "usr/lib/x86_64-linux-gnu").mkdir(parents=True)
    here = machine(tmp_path)
    assert Loader(here, PYTHON).default_folders[0] == "/usr/lib/x86_64-linux-gnu"


def test_dynamic_string_tokens_are_expanded(tmp_path: Path) -> None:
    program = elf(interpreter=LOADER, runpath="${ORIGIN}/../$LIB/$PLATFORM/$OTHER")
    here = machine(tmp_path, "/env/lib64/x86_64/$OTHER", program=program)
    assert taken(here) == (f"/env/lib64/x86_64/$OTHER/{NAME}", "RUNPATH")


def test_preloaded_library_satisfies_its_name(tmp_path: Path) -> None:
    here = machine(tmp_path, "/a", search="/a", LD_PRELOAD="/p/other.so libm.so.6:/p/mine.so")
    place(tmp_path, "/p/other.so", elf(soname="libother.so"))
    place(tmp_path, "/p/mine.so", LIBRARY)
    assert taken(here) == ("/p/mine.so", "LD_PRELOAD")


def test_name_with_a_slash_is_a_path(tmp_path: Path) -> None:
    here = machine(tmp_path, "/a", "/job/here", search="/a")
    assert taken(here, f"here/{NAME}") == (f"/job/here/{NAME}", "path")
    assert taken(here, f"/b/{NAME}") is None


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (b"#!/bin/sh\n", "not an ELF file"),
        (b"", "is empty"),
        (elf(), "statically"),
        (elf(interpreter="/lib/ld-musl-x86_64.so.1"), "musl"),
    ],
)
def test_programs_with_an_unknown_loader_are_refused(tmp_path: Path, program: bytes, why: str) -> None:
    with pytest.raises(NoSuchLoader, match=why):
        Loader(machine(tmp_path, program=program), PYTHON)


def test_missing_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoSuchLoader, match="No such file"):
        Loader(machine(tmp_path), "/nowhere")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a compiler")
def test_real_loader_agrees(tmp_path: Path) -> None:
    """A library in many folders, and many values of LD_LIBRARY_PATH: the result matches what Python loads."""
    source = tmp_path / "x.c"
    source.write_text("int x(void) { return 1; }\n")
    build = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{NAME}", "-o", str(tmp_path / NAME), str(source)]
    subprocess.run(build, check=True)
    for folder in ("a", "b/glibc-hwcaps/x86-64-v2", "b", "c", "script"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / NAME, tmp_path / folder / NAME)
    (tmp_path / "c" / NAME).unlink()
    (tmp_path / "c" / NAME).symlink_to("/nowhere")
    (tmp_path / "script" / NAME).write_text("no library")
    load = (
        "import ctypes, sys\ntry:\n    ctypes.CDLL(sys.argv[1])\nexcept OSError:\n    print('')\nelse:\n"
        "    print(next(line.split()[-1] for line in open('/proc/self/maps') if sys.argv[1] in line))"
    )
    for entries in (["a"], ["b", "a"], ["c", "a"], ["c"], ["script", "a"], ["", "a"], ["gone", "b"]):
        value = ":".join(str(tmp_path / entry) for entry in entries)
        machine = Machine(environ={**os.environ, "LD_LIBRARY_PATH": value}, cwd=tmp_path)
        child = [sys.executable, "-c", load, NAME]
        done = subprocess.run(
            child, env=dict(machine.environ), cwd=tmp_path, capture_output=True, text=True, check=True
        )
        found = Loader(machine, sys.executable).find(NAME)
        assert (found.path if found else "") == done.stdout.strip(), value


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ldconfig") is None, reason="needs ldconfig")
def test_ldconfig_agrees() -> None:
    """All that `ldconfig -p` prints of this machine, in its order."""
    done = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True)
    lines = [line.strip().partition(" ") for line in done.stdout.splitlines() if " => " in line]
    printed = [(name, rest.partition(" => ")[2]) for name, _, rest in lines]
    assert [(entry.soname, entry.path) for entry in Loader(Machine(), sys.executable).cache] == printed

"""Requirements, version needs and exports of an ELF file."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from support.compiled import build

from verl_doctor.toolkit.sources.elf.elf import ElfFile, Header, RequiredVersion, Undefined, read_header

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with versions of its symbols, and a module that uses it."""
    folder = tmp_path_factory.mktemp("libraries")
    build(
        folder,
        "libparts.so.1",
        "int old(void){return 1;} int both(void){return 2;} int hidden(void){return 3;} int value = 4;",
        "-Wl,-soname,libparts.so.1",
        versions="PARTS_1.0 { global: old; value; local: hidden; }; PARTS_2.0 { global: both; } PARTS_1.0;",
    )
    build(
        folder,
        "module.so",
        "extern int old(void), both(void), missing(void); extern int value; extern int perhaps(void) __attribute__((weak));"
        "int PyInit_module(void){ return old() + both() + missing() + value + (perhaps ? perhaps() : 0); }",
        "-Wl,-rpath,$ORIGIN:/elsewhere",
        "-Wl,--enable-new-dtags",
        needs=["libparts.so.1"],
    )
    return folder


def test_required_libraries_and_search_path_of_a_module_are_read(libraries: Path) -> None:
    header = read_header(str(libraries / "module.so"))
    assert header.problem == ""
    assert header.bits == 64
    assert header.needed == ("libparts.so.1",)
    assert (header.rpath, header.runpath) == ("", "$ORIGIN:/elsewhere")
    assert header.soname == ""
    assert set(header.requires) == {
        RequiredVersion("libparts.so.1", "PARTS_1.0", weak=False),
        RequiredVersion("libparts.so.1", "PARTS_2.0", weak=False),
    }


def test_rpath_is_distinguished_from_runpath(tmp_path: Path) -> None:
    header = read_header(
        str(build(tmp_path, "a.so", "int a;", "-Wl,-rpath,/there", "-Wl,--disable-new-dtags"))
    )
    assert (header.rpath, header.runpath) == ("/there", "")


def test_undefined_symbols_with_binding_and_version(libraries: Path) -> None:
    with ElfFile(str(libraries / "module.so")) as file:
        assert set(file.undefined()) >= {
            Undefined("old", weak=False, version="PARTS_1.0", library="libparts.so.1"),
            Undefined("both", weak=False, version="PARTS_2.0", library="libparts.so.1"),
            Undefined("value", weak=False, version="PARTS_1.0", library="libparts.so.1"),
            Undefined("missing", weak=False, version="", library=""),
            Undefined("perhaps", weak=True, version="", library=""),
        }
        assert not file.exports("missing")
        assert file.exports("PyInit_module")


@pytest.mark.slow
@pytest.mark.parametrize("style", ["gnu", "sysv", "both"])
def test_exports_are_found_through_either_hash_table(tmp_path: Path, style: str) -> None:
    names = [f"_ZN3c10{number}symbolEv" for number in range(300)]
    source = (
        "".join(f"int {name}(void){{return 0;}}" for name in names) + "extern int away; int *use = &away;"
    )
    with ElfFile(str(build(tmp_path, "many.so", source, f"-Wl,--hash-style={style}"))) as file:
        assert all(file.exports(name) for name in names)
        assert not any(file.exports(name) for name in ("away", "_ZN3c10", "_ZN3c10300symbolEv", "", "\udcff"))
        assert [symbol.name for symbol in file.undefined()] == ["away"]
        assert set(file.exports_starting("_ZN3c1029", most=3)) < set(names)
        assert len(file.exports_starting("_ZN3c1029", most=3)) == 3


def test_version_is_part_of_an_export(libraries: Path) -> None:
    with ElfFile(str(libraries / "libparts.so.1")) as file:
        assert file.header.soname == "libparts.so.1"
        assert set(file.header.defines) == {"PARTS_1.0", "PARTS_2.0"}
        assert file.exports("both")
        assert file.exports("both", "PARTS_2.0")
        assert not file.exports("both", "PARTS_1.0")
        assert not file.exports("hidden")


def test_library_without_versions_satisfies_any(libraries: Path) -> None:
    with ElfFile(str(libraries / "module.so")) as file:
        assert file.exports("PyInit_module", "ANY_1.0")


def test_library_without_exports_still_lists_undefined_symbols(tmp_path: Path) -> None:
    path = build(
        tmp_path, "silent.so", "extern int away(void); static int (*use)(void) __attribute__((used)) = away;"
    )
    with ElfFile(str(path)) as file:
        assert [symbol.name for symbol in file.undefined()] == ["away"]


def test_other_files_have_a_reason(tmp_path: Path) -> None:
    for name, content, reason in (
        ("empty", b"", "it is empty"),
        ("text", b"hello" * 20, "it is not an ELF file"),
    ):
        (tmp_path / name).write_bytes(content)
        assert read_header(str(tmp_path / name)) == Header(problem=reason)
    assert read_header(str(tmp_path / "none")).problem == "No such file or directory"
    assert read_header(str(tmp_path)).problem == "Is a directory"
    with ElfFile(str(tmp_path / "none")) as file:
        assert file.undefined() == ()
        assert not file.exports("a")
        assert file.exports_starting("a") == ()
        assert file.section(".text") is None
        assert file.read(0, 4) == b""


def test_other_architectures_and_32_bit_files_are_named(tmp_path: Path) -> None:
    plain = struct.pack("=4sBBBB8xHHI", b"\x7fELF", 1, 1, 1, 0, 3, 3, 1) + b"\0" * 40
    (tmp_path / "i386.so").write_bytes(plain)
    assert read_header(str(tmp_path / "i386.so")) == Header(bits=32, machine="i386")


def test_sections_are_found_by_name(tmp_path: Path) -> None:
    source = 'const char text[] __attribute__((section(".nv_fatbin"), used)) = "kernels";'
    with ElfFile(str(build(tmp_path, "fat.so", source))) as file:
        assert (found := file.section(".nv_fatbin")) is not None
        assert file.read(*found) == b"kernels\0"
        assert file.section(".nv_fat") is None


def _real_libraries() -> list[Path]:
    folders = [
        Path("/lib/x86_64-linux-gnu"),
        Path("/lib/aarch64-linux-gnu"),
        Path("/lib64"),
        Path("/usr/lib"),
    ]
    folder = next((folder for folder in folders if (folder / "libc.so.6").exists()), None)
    return sorted(path for path in folder.glob("lib*.so*") if path.is_file())[::12] if folder else []


@pytest.mark.slow
def test_real_libraries_are_read_as_by_pyelftools() -> None:
    from elftools.elf.dynamic import DynamicSegment
    from elftools.elf.elffile import ELFFile

    compared = 0
    for path in _real_libraries():
        with path.open("rb") as stream, ElfFile(str(path)) as ours:
            if stream.read(4) != b"\x7fELF":
                continue
            theirs = ELFFile(stream)
            dynamic = next(part for part in theirs.iter_segments() if isinstance(part, DynamicSegment))
            assert ours.header.needed == tuple(tag.needed for tag in dynamic.iter_tags("DT_NEEDED"))
            wanted = theirs.get_section_by_name(".gnu.version_r")
            versions = (
                [(file.name, aux.name) for file, more in wanted.iter_versions() for aux in more]
                if wanted
                else []
            )
            assert [(required.library, required.version) for required in ours.header.requires] == versions
            symbols = list(theirs.get_section_by_name(".dynsym").iter_symbols())
            undefined = {s.name for s in symbols if s["st_shndx"] == "SHN_UNDEF" and s.name}
            exported = {
                s.name
                for s in symbols
                if s["st_shndx"] != "SHN_UNDEF" and s["st_info"]["bind"] != "STB_LOCAL"
            }
            assert {symbol.name for symbol in ours.undefined()} == undefined
            assert all(ours.exports(name) for name in exported)
            assert not any(ours.exports(name) for name in undefined - exported)
            compared += 1
    assert compared > 10 or not _real_libraries()

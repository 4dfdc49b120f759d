"""Compiled packages of a small environment: what each lacks next to the installed torch."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.compiled import build
from support.environments import install, interpreter, look_at, site_packages

from verl_doctor.checks.compiled.extension_lacks_library import extension_lacks_library
from verl_doctor.checks.shared.extensions import TORCH
from verl_doctor.toolkit.collectors.compiled.extensions import Extension, Extensions, MissingVersion
from verl_doctor.toolkit.collectors.compiled.extensions_collector import extensions
from verl_doctor.toolkit.collectors.compiled.torch_build import TorchBuild, torch_build
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.result_cache import keep, recall
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.testing import run_check

NEW = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
ERROR = f"_ZN3c105ErrorC2ENS_14SourceLocationE{NEW}"
OLD_ERROR = "_ZN3c105ErrorC2ENS_14SourceLocationESs"
SET_DEVICE = "_ZN3c104cuda9SetDeviceEab"


def defining(*names: str) -> str:
    return "".join(f"void {name}(void){{}}" for name in names)


def using(*names: str) -> str:
    calls = "".join(f"{name}();" for name in names)
    return "".join(f"extern void {name}(void);" for name in names) + f"void PyInit_m(void){{{calls}}}"


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The libraries of a torch, and modules that go with it or do not."""
    folder = tmp_path_factory.mktemp("parts")
    build(folder, "libc10.so", defining(ERROR, SET_DEVICE), "-Wl,-soname,libc10.so")
    build(folder, "libtorch.so", "", "-Wl,-soname,libtorch.so", "-Wl,-rpath,$ORIGIN", needs=["libc10.so"])
    build(folder, "libcudart.so.12", defining("cudaMalloc"), "-Wl,-soname,libcudart.so.12")
    build(folder, "fits.so", using(ERROR), needs=["libtorch.so", "libc10.so"])
    build(
        folder,
        "other.so",
        using(OLD_ERROR, "_ZN3c104cuda9SetDeviceEa", "_ZN3c104goneEv"),
        needs=["libc10.so"],
    )
    build(folder, "weak.so", "extern void away(void) __attribute__((weak)); void PyInit_m(void){if (away) away();}", needs=["libc10.so"])  # fmt: skip
    build(folder, "runtime.so", using("cudaMalloc"), needs=["libcudart.so.12"])
    build(folder, "driver.so", using("cuCtxGetDevice", "nvmlInit_v2"), needs=["libc10.so"])
    build(folder, "libnccl.so.2", defining("ncclSend"), "-Wl,-soname,libnccl.so.2")
    build(folder, "newer.so", using("ncclSend", "ncclCommWindowRegister"), needs=["libnccl.so.2"])
    build(folder, "nvrtc.so", using("nvrtcCompileProgram"), needs=["libc10.so"])
    build(folder, "libnvrtc.so.12", defining("nvrtcCompileProgram"), "-Wl,-soname,libnvrtc.so.12")
    build(folder, "libextra.so", defining("extra"), "-Wl,-soname,libextra.so")
    build(folder, "sibling.so", using("extra"), needs=["libc10.so"])
    return folder


def shell() -> tuple[Variables, JobVariables]:
    """The variables of this process, as a job that is started from it would have them."""
    variables = Variables(dict(os.environ))
    return variables, JobVariables(variables.values)


class Environment:
    """A folder with packages, and the facts that are read from it."""

    def __init__(self, top: Path, parts: Path) -> None:
        self.site = site_packages(top)
        self.parts = parts

    def torch(self, version: str = "2.8.0+cu128", cuda: str = "'12.8'") -> None:
        text = f"from typing import Optional\n__version__ = '{version}'\ncuda: Optional[str] = {cuda}\nhip: Optional[str] = None\n"
        files = {"torch/__init__.py": b"", "torch/version.py": text.encode()}
        for name in ("libc10.so", "libtorch.so"):
            files[f"torch/lib/{name}"] = (self.parts / name).read_bytes()
        install(self.site, "torch", version, files=files, tag="cp311-cp311-manylinux_2_28_x86_64")

    def add(
        self, package: str, part: str, *, to: str = "", version: str = "1.0", requires: tuple[str, ...] = ()
    ) -> None:
        files = {to or f"{package.replace('-', '_')}/_C.so": (self.parts / part).read_bytes()}
        install(self.site, package, version, files=files, requires=requires, tag="cp311-cp311-linux_x86_64")

    @property
    def python(self) -> Interpreter:
        return replace(interpreter(self.site), executable=sys.executable)

    def look(self) -> Extensions:
        python = self.python
        found = extensions.collect(
            Machine(), python, look_at(self.site), torch_build.collect(python), *shell()
        )
        assert isinstance(found, Extensions)
        return found

    def of(self, package: str) -> Extension:
        (found,) = (extension for extension in self.look().extensions if extension.package == package)
        return found


@pytest.fixture
def environment(tmp_path: Path, parts: Path) -> Environment:
    made = Environment(tmp_path / "env", parts)
    made.torch()
    return made


def test_matching_package_lacks_nothing(environment: Environment) -> None:
    environment.add("vllm", "fits.so", requires=("torch==2.8.0",))
    found = environment.of("vllm")
    assert found.loads
    assert found.uses_torch
    assert found.built_for_torch == "2.8.0"


def test_missing_symbols_are_demangled_and_compared_with_torchs(environment: Environment) -> None:
    environment.add("flash-attn", "other.so", version="2.8.3+cu12torch2.6cxx11abiFALSE")
    found = environment.of("flash-attn")
    assert not found.loads
    assert found.symbols_missing == 3
    assert found.built_for_torch == "2.6"
    words = {symbol.name: (symbol.words, symbol.similar) for symbol in found.missing_symbols}
    (old, (new,)) = words[OLD_ERROR]
    assert old == "c10::Error::Error(c10::SourceLocation, std::string)"
    assert "std::__cxx11::basic_string" in new
    assert words["_ZN3c104cuda9SetDeviceEa"] == (
        "c10::cuda::SetDevice(signed char)",
        ("c10::cuda::SetDevice(signed char, bool)",),
    )
    assert words["_ZN3c104goneEv"] == ("c10::gone()", ())


def test_weak_symbols_may_be_missing(environment: Environment) -> None:
    environment.add("apex", "weak.so")
    assert environment.of("apex").loads


def test_unreachable_cuda_library_is_reported(environment: Environment) -> None:
    environment.add("sgl-kernel", "runtime.so")
    found = environment.of("sgl-kernel")
    assert [missing.name for missing in found.missing_libraries] == ["libcudart.so.12"]
    assert found.cuda_runtimes == ("libcudart.so.12",)
    assert found.missing_symbols == ()


def test_libraries_from_nvidia_wheels_are_found_by_torch(environment: Environment) -> None:
    environment.add(
        "nvidia-cuda-runtime-cu12", "libcudart.so.12", to="nvidia/cuda_runtime/lib/libcudart.so.12"
    )
    environment.add("sgl-kernel", "runtime.so")
    assert environment.of("sgl-kernel").loads


def test_ld_library_path_is_searched(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.add("sgl-kernel", "runtime.so")
    shutil.copy(environment.parts / "libcudart.so.12", tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert environment.of("sgl-kernel").loads


def test_symbol_exported_by_a_sibling_library_is_not_missing(environment: Environment) -> None:
    files = {name: (environment.parts / name).read_bytes() for name in ("sibling.so", "libextra.so")}
    install(
        environment.site,
        "transformer-engine-torch",
        "1.0",
        files={f"transformer_engine/{name}": body for name, body in files.items()},
        tag="cp311-cp311-linux_x86_64",
    )
    assert all(found.loads for found in environment.look().extensions)


def test_one_loadable_build_of_several_is_enough(environment: Environment) -> None:
    files = {
        "bits/libbits_cuda118.so": (environment.parts / "other.so").read_bytes(),
        "bits/libbits_cuda128.so": (environment.parts / "fits.so").read_bytes(),
    }
    install(environment.site, "bits", "1.0", files=files, tag="py3-none-manylinux_2_24_x86_64")
    found = {
        Path(extension.path).name: extension.instead
        for extension in environment.look().extensions
        if extension.package == "bits"
    }
    assert found["libbits_cuda118.so"].endswith("libbits_cuda128.so")
    assert found["libbits_cuda128.so"] == ""


def test_second_scan_reads_the_cached_results(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.add("flash-attn", "other.so")
    first = environment.look()
    monkeypatch.setattr("verl_doctor.toolkit.collectors.compiled.elf_memory.read_header", None)
    monkeypatch.setattr("verl_doctor.toolkit.sources.elf.elf.ElfFile.undefined", None)
    assert environment.look() == first


def test_replaced_file_is_read_again(environment: Environment) -> None:
    environment.add("flash-attn", "other.so")
    assert not environment.of("flash-attn").loads
    replaced = environment.site / "flash_attn" / "_C.so"
    replaced.unlink()
    shutil.copy(environment.parts / "fits.so", replaced)
    assert environment.of("flash-attn").loads


def test_linker_scripts_are_not_reported(environment: Environment) -> None:
    files = {"tools/libtbb.so": b"INPUT(libtbb.so.12)\n" * 9, "tools/libnone.so": b""}
    install(environment.site, "tools", "1.0", files=files, tag="cp311-cp311-linux_x86_64")
    assert {found.package for found in environment.look().extensions} == {"torch"}


@pytest.mark.parametrize("name", ["_C.abi3.so", "_raylet.so", "_C.cpython-311-x86_64-linux-gnu.so"])
@pytest.mark.parametrize(
    ("body", "problem"),
    [(b"", "it is empty"), (b"version https://git-lfs.github.com/spec/v1\n" * 9, "it is not an ELF file")],
)
def test_module_that_is_not_an_elf_file_is_reported(
    environment: Environment, name: str, body: bytes, problem: str
) -> None:
    """A build for another processor does not replace the damaged one."""
    sound = (environment.parts / "fits.so").read_bytes()
    files = {f"vllm/{name}": body, f"vllm/{name.replace('.', '_AVX2.', 1)}": sound}
    install(environment.site, "vllm", "1.0", files=files, tag="cp311-cp311-linux_x86_64")
    (found,) = (extension for extension in environment.look().extensions if not extension.loads)
    assert (found.problem, found.instead) == (f"{environment.site}/vllm/{name}: {problem}", "")
    (finding,) = run_check(
        extension_lacks_library, environment.python, TORCH, Extensions((found,), 1)
    ).findings
    assert finding.message == f"vllm 1.0 cannot be loaded: {name}: {problem}"


def test_truncated_files_and_files_for_another_processor_are_reported(environment: Environment) -> None:
    sound = (environment.parts / "fits.so").read_bytes()
    foreign = bytearray(sound)
    foreign[18:20] = (243).to_bytes(2, "little")
    for name, body in {"half": sound[: len(sound) // 8], "foreign": bytes(foreign)}.items():
        install(
            environment.site, name, "1.0", files={f"{name}/_C.abi3.so": body}, tag="cp311-cp311-linux_x86_64"
        )
    assert environment.of("half").problem.endswith(
        "/half/_C.abi3.so: it is truncated, or an offset in it is invalid"
    )
    assert "it is for riscv64, this machine is" in environment.of("foreign").problem


def test_damaged_torch_library_is_reported_as_damaged(environment: Environment) -> None:
    environment.add("vllm", "fits.so")
    library = environment.site / "torch" / "lib" / "libc10.so"
    library.write_bytes(library.read_bytes()[:600])
    found = environment.of("vllm")
    assert found.symbols_missing == 0
    assert found.problem.startswith(f"{library}: ")


@pytest.mark.slow
def test_library_of_another_cuda_before_the_wheels_is_reported(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The versioned symbol that libcusparse of CUDA 12.4 needs and libnvJitLink of 12.1 lacks."""
    versions = "libnvJitLink.so.12 { global: *; };"
    for folder, name in (("new", "__nvJitLinkComplete_12_4"), ("old", "__nvJitLinkComplete_12_1")):
        build(
            tmp_path / folder,
            "libnvJitLink.so.12",
            defining(name),
            "-Wl,-soname,libnvJitLink.so.12",
            versions=versions,
        )
    module = build(tmp_path / "new", "m.so", using("__nvJitLinkComplete_12_4"), needs=["libnvJitLink.so.12"])
    install(
        environment.site,
        "sgl-kernel",
        "1.0",
        files={"sgl_kernel/_C.abi3.so": module.read_bytes()},
        tag="cp310-abi3-linux_x86_64",
    )
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "new"))
    assert environment.of("sgl-kernel").loads
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "old"))
    (symbol,) = environment.of("sgl-kernel").missing_symbols
    assert (symbol.name, symbol.expected_of) == (
        "__nvJitLinkComplete_12_4",
        f"{tmp_path}/old/libnvJitLink.so.12",
    )


@pytest.mark.slow
def test_older_libstdcxx_before_the_system_one_is_reported(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, number in (("old", 29), ("new", 32)):
        text = "".join(f"GLIBCXX_3.4.{n} {{ global: f{n}; }};" for n in range(28, number + 1))
        build(
            tmp_path / folder,
            "libstdc++.so.6",
            defining(*(f"f{n}" for n in range(28, number + 1))),
            "-Wl,-soname,libstdc++.so.6",
            versions=text,
        )
    libtorch = build(tmp_path / "new", "libtorch_cpu.so", using("f28"), needs=["libstdc++.so.6"])
    shutil.copy(libtorch, environment.site / "torch" / "lib")
    module = build(tmp_path / "new", "m.so", using("f32"), needs=["libstdc++.so.6"])
    install(
        environment.site,
        "vllm",
        "1.0",
        files={"vllm/_C.abi3.so": module.read_bytes()},
        tag="cp310-abi3-linux_x86_64",
    )
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path / 'old'}:{tmp_path / 'new'}")
    (missing,) = environment.of("vllm").missing_versions
    assert missing == MissingVersion(
        "GLIBCXX_3.4.32",
        "libstdc++.so.6",
        f"{tmp_path}/old/libstdc++.so.6",
        "GLIBCXX_3.4.29",
        f"{tmp_path}/new/libstdc++.so.6",
    )
    assert environment.of("vllm").symbols_missing == 0


def test_packages_are_inspected_without_torch(tmp_path: Path, parts: Path) -> None:
    environment = Environment(tmp_path / "env", parts)
    environment.add("flash-attn", "fits.so")
    found = torch_build.collect(environment.python)
    assert isinstance(found, Absent)
    assert [missing.name for missing in environment.of("flash-attn").missing_libraries] == [
        "libtorch.so",
        "libc10.so",
    ]


def test_unreadable_interpreter_is_unknown(environment: Environment) -> None:
    python = replace(environment.python, executable=str(environment.site / "none"))
    found = extensions.collect(Machine(), python, look_at(environment.site), Absent("no torch"), *shell())
    assert isinstance(found, Unknown)
    elsewhere = replace(python, system="Darwin")
    found = extensions.collect(Machine(), elsewhere, look_at(environment.site), Absent("no torch"), *shell())
    assert isinstance(found, Absent)


def test_variables_set_in_a_launch_file_apply(environment: Environment, tmp_path: Path) -> None:
    environment.add("sgl-kernel", "runtime.so")
    shutil.copy(environment.parts / "libcudart.so.12", tmp_path)
    job = JobVariables({"LD_LIBRARY_PATH": str(tmp_path)}, places={"LD_LIBRARY_PATH": ("run.sh", 3)})
    found = extensions.collect(
        Machine(), environment.python, look_at(environment.site), Absent("no torch"), Variables(), job
    )
    assert isinstance(found, Extensions)
    assert all(extension.loads for extension in found.extensions if extension.package == "sgl-kernel")


def test_fact_survives_json(environment: Environment) -> None:
    environment.add("flash-attn", "other.so")
    environment.add("sgl-kernel", "runtime.so")
    fact = environment.look()
    keep(fact, "key")
    assert recall(Extensions, "key") == fact


@pytest.mark.slow
def test_damaged_cache_is_ignored(environment: Environment, private_home: Path) -> None:
    environment.add("flash-attn", "other.so")
    first = environment.look()
    (memory,) = private_home.rglob("elf.json")
    sound = memory.read_bytes()
    numbers = json.dumps(dict.fromkeys(json.loads(sound), 1)).encode()
    for damaged in (b"", b"[]", sound[: len(sound) // 2], numbers, b"\xff" * 99):
        memory.write_bytes(damaged)
        assert environment.look() == first


def test_installed_torch_and_its_abi(environment: Environment) -> None:
    folder = environment.site / "torch"
    assert torch_build.collect(environment.python) == TorchBuild(
        str(folder), "2.8.0+cu128", cuda="12.8", cxx11_abi=True
    )
    build(folder / "lib", "libc10.so", defining(OLD_ERROR))
    found = torch_build.collect(environment.python)
    assert isinstance(found, TorchBuild)
    assert found.cxx11_abi is False
    (folder / "version.py").write_text("__version__ = (\n", encoding="utf-8")
    assert isinstance(torch_build.collect(environment.python), Unknown)


def test_files_for_another_python_version_are_ignored(environment: Environment) -> None:
    environment.add("vllm", "other.so", to="vllm/_C.cpython-313-x86_64-linux-gnu.so")
    assert [found for found in environment.look().extensions if found.package == "vllm"] == []


def test_plugins_in_nvidia_wheels_are_ignored(environment: Environment) -> None:
    environment.add("nvidia-nvshmem-cu12", "runtime.so", to="nvidia/nvshmem/lib/nvshmem_transport.so.3")
    assert [found for found in environment.look().extensions if found.package.startswith("nvidia-")] == []


def test_driver_functions_are_never_missing(environment: Environment) -> None:
    environment.add("torch-memory-saver", "driver.so")
    assert environment.of("torch-memory-saver").loads


def test_cuda_library_older_than_required_is_reported(environment: Environment) -> None:
    library = "nvidia/nccl/lib/libnccl.so.2"
    environment.add("nvidia-nccl-cu12", "libnccl.so.2", to=library)
    environment.add("deep-ep", "newer.so")
    (symbol,) = environment.of("deep-ep").missing_symbols
    assert (symbol.name, symbol.expected_of) == ("ncclCommWindowRegister", f"{environment.site}/{library}")


def test_nvidia_wheels_provide_symbols_without_a_listed_dependency(environment: Environment) -> None:
    environment.add("transformer-engine-torch", "nvrtc.so")
    assert environment.of("transformer-engine-torch").symbols_missing == 1
    environment.add("nvidia-cuda-nvrtc-cu12", "libnvrtc.so.12", to="nvidia/cuda_nvrtc/lib/libnvrtc.so.12")
    assert environment.of("transformer-engine-torch").loads


def test_distributions_of_one_project_share_their_libraries(environment: Environment) -> None:
    environment.add("transformer-engine-torch", "sibling.so", to="te_torch.so")
    assert not environment.of("transformer-engine-torch").loads
    environment.add("transformer-engine-cu12", "libextra.so", to="transformer_engine/libextra.so")
    assert environment.of("transformer-engine-torch").loads


@pytest.mark.parametrize(
    "name", ["nixl_ep_cu12/ep_torch{}{}", "mooncake/pg_{}_{}_0", "dlpack/libaddon_torch{}{}-cuda"]
)
def test_matching_build_is_chosen_by_torch_version(environment: Environment, name: str) -> None:
    files = {
        f"{name.format(2, minor)}.cpython-311-x86_64-linux-gnu.so": (environment.parts / part).read_bytes()
        for minor, part in {8: "fits.so", 12: "other.so", 13: "other.so"}.items()
    }
    install(environment.site, "many", "1.0", files=files, tag="cp311-cp311-linux_x86_64")
    instead = {found.instead for found in environment.look().extensions if not found.loads}
    assert instead == {f"{environment.site}/{name.format(2, 8)}.cpython-311-x86_64-linux-gnu.so"}


def test_no_build_for_the_installed_torch_is_reported(environment: Environment) -> None:
    environment.add("nixl-cu12", "other.so", to="nixl_ep_cu12/ep_torch213.so")
    found = environment.of("nixl-cu12")
    assert (found.instead, found.built_for_torch) == ("", "2.13")

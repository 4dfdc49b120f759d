"""PY103: sources have no bytecode cache, so every process compiles them again."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.packages.bytecode import Bytecode, PackageBytecode
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Severity, Subject, check
from verl_doctor.toolkit.text import counted

# Fewer are not noticeable. A large package alone has more than 2,000 sources.
_FEW = 500
_SMALL_SHARE = 0.2
# Measured on an H200 machine with verl 0.9.1 and vLLM 0.24, 16 cores: without caches, then with them.
_COST = (
    "measured on an H200 node: import vllm 12.5-17.3 s without caches, 3.8-4.9 s with them; "
    "verl.trainer.main_ppo 16.4-24.9 s and 7.5-9.8 s, in every worker process"
)

_ELSEWHERE = "compile them where the environment is built, or set PYTHONPYCACHEPREFIX to a local folder"


def _facts(
    missing: int, *, writable: bool = True, prefix: str = "", **variables: str
) -> tuple[Bytecode, Variables]:
    torch = PackageBytecode(
        name="torch", folder="/env/lib/python3.11/site-packages/torch", sources=2_400, missing=missing
    )
    return Bytecode(packages=(torch,), writable=writable, prefix=prefix), Variables(variables)


def _examples() -> list[Example]:
    return [
        Example("all caches exist", _facts(0)),
        Example("a few test files were never imported", _facts(400)),
        Example("the variable does no harm when the caches exist", _facts(0, PYTHONDONTWRITEBYTECODE="1")),
        Example("the first run will write them", _facts(2_400), "first import"),
        Example("and never will", _facts(2_400, PYTHONDONTWRITEBYTECODE="1"), "PYTHONDONTWRITEBYTECODE"),
        Example("the folder is read-only", _facts(2_400, writable=False), "site-packages is not writable"),
    ]


@check("PY103", severity="warning", requires={"PY100"}, examples=_examples)
def bytecode_missing(bytecode: Bytecode, variables: Variables) -> Iterator[Finding]:
    """Sources have no bytecode cache, so every process compiles them again.

    ## Why it matters

    A verl job starts dozens of Python processes that each import torch, vLLM, transformers and Ray: some
    10,000 files. Without caches each process compiles them again, which made imports two to four times slower
    on a machine with an H200 and pushes slow workers over Ray's 60 s start-up limit.

    Python writes the caches at the first import, unless `PYTHONDONTWRITEBYTECODE` is set (many container
    images set it) or the folder is read-only. `uv pip install` writes none without `--compile-bytecode`.

    ## How to fix

    `verl-doctor fix --apply --select PY103` compiles them once, with all cores, in under a minute, also while
    the variable is set: it only forbids writing. In an image: run `python -m compileall -q -j 0` over
    site-packages while building it. On a read-only file system: set `PYTHONPYCACHEPREFIX` to a local folder,
    for all processes of the job.
    """
    if bytecode.missing < max(_FEW, _SMALL_SHARE * bytecode.sources):
        return
    lacking = [package for package in bytecode.packages if package.missing]
    why, remedy, severity, fix = _consequence(bytecode, variables)
    yield Finding(
        f"{bytecode.missing:,} of {counted(bytecode.sources, 'source')} have no bytecode cache, and {why}",
        Evidence(
            found=", ".join(
                f"{package.name} lacks {package.missing} of {package.sources}" for package in lacking
            ),
            wanted=f"a cache for each source ({_COST})",
            read_from=bytecode.prefix or ", ".join(dict.fromkeys(_parent(package) for package in lacking)),
        ),
        remedy=remedy,
        severity=severity,
        fix=fix,
        subject=Subject("folder", bytecode.prefix or _parent(lacking[0])),
    )


def _consequence(bytecode: Bytecode, variables: Variables) -> tuple[str, str, Severity, str | None]:
    """What will become of the caches, the remedy, the severity, and the fix that would help."""
    place = bytecode.prefix or "site-packages"
    if not bytecode.writable:
        fix = None if bytecode.prefix else "bytecode-elsewhere"
        return f"never will, because {place} is not writable", _ELSEWHERE, "warning", fix
    forbidden = variables.get("PYTHONDONTWRITEBYTECODE")
    if not forbidden:
        return "the first import of each will write it", "", "info", None
    why = f"never will, because PYTHONDONTWRITEBYTECODE={forbidden}"
    if bytecode.prefix:
        return why, f"run python -m compileall with PYTHONPYCACHEPREFIX={bytecode.prefix}", "warning", None
    return why, "compile them once, with all cores", "warning", "precompile"


def _parent(package: PackageBytecode) -> str:
    return package.folder.rpartition("/")[0]

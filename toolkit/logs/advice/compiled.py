"""Advice on compiled code: libraries that do not load, crashes, kernels, processes without a GPU."""

from __future__ import annotations

import re
from collections.abc import Sequence

from verl_doctor.toolkit.logs.advice.inputs import PACKAGE
from verl_doctor.toolkit.logs.advice.parts import switch_for, without_part
from verl_doctor.toolkit.logs.advice.places import Place, place_of, shown_at
from verl_doctor.toolkit.logs.blame import STANDARD, package_of
from verl_doctor.toolkit.logs.lines import Line
from verl_doctor.toolkit.logs.packages import cuda_wheel, distribution
from verl_doctor.toolkit.logs.python_errors import Frame, Raised

# A message may be a single long word: a pattern with three repetitions that can all begin anywhere in it
# would take hours.
_SYMBOL = re.compile(r": undefined symbol: (\S+)")
_OF_LIBRARY = re.compile(r", version (lib\w+\.so\.\d+)")  # the library that should have the symbol
_LIBRARY = re.compile(r"(?<![\w.+-])(\w[\w.+-]*\.so[\w.]*): cannot open shared object file")
_OF_CRASHED = "enforce_eager=True, disable_custom_all_reduce=True"  # of vLLM as a whole
CRASH = "LOG117"
"""The code of a crash in compiled code."""
_CRASH = re.compile(r'File "([^"]+)", line (\d+) in (\S+)')
_OF_NCCL = re.compile(r"nccl[A-Z]")
_CRASH_LINES = 12  # lines of the crashed thread's stack that are searched for a place
_THREADS_LINES = 400  # lines below "Fatal Python error" that are searched for the crashed thread
_THREAD = re.compile(r"\b(Current thread|Thread) 0x[0-9a-f]+")
_WITHOUT_GPU = re.compile(r"TaskRunner|Reward\w*Worker|RewardManager|AgentLoopWorker|main_task")
_KERNEL = re.compile(r"illegal memory access|misaligned address|unspecified launch failure")
_BUILT = re.compile(r"(/\S*torch_extensions/\S+/)\w+\.so: cannot open shared object file")


def unlinked(raised: Raised) -> str:
    """Return advice on a compiled file built for another release, or a library the loader cannot find."""
    if found := _SYMBOL.search(raised.message):
        path = ("", *raised.message[: found.start()].split())[-1]
        installed = PACKAGE.search(path)
        package = installed[1] if installed else path.rpartition("/")[2].partition(".")[0]
        named = distribution(re.sub(r"_\d?_?cuda$|_2$", "", package)) if package else "the package"
        library = _OF_LIBRARY.match(raised.message, found.end() - found[1].endswith(","))
        if library is not None and (wheel := cuda_wheel(library[1])):
            return (
                f"{package} was built with a newer {library[1]} than the one that is loaded: pip "
                f"install -U {wheel} with the job's Python, on every node, and take CUDA's folders of "
                "the system out of LD_LIBRARY_PATH, whose library would be loaded first; or install "
                f"the {named} that was built for the CUDA of the installed torch"
            )
        if re.search(r"c10|torch|aten|_ZN2at", found[1]):
            return (
                f"{package} was built for another torch: reinstall {named} for the installed torch (pip "
                f"install --force-reinstall --no-cache-dir --no-build-isolation {named}), or rebuild it"
            )
        return ""
    if found := _BUILT.search(raised.message):
        return (
            f"it is compiled when it is first used, and that failed: remove {found[1]}, install ninja "
            "and a CUDA toolkit of torch's CUDA (nvcc, CUDA_HOME) with the job's Python on every node, "
            "and read the first error of the next run; or install a newer release of the package that "
            "compiles it, which may bring it compiled or do without"
        )
    if (found := _LIBRARY.search(raised.message)) and (wheel := cuda_wheel(found[1])):
        cuda = found[1].rpartition(".so.")[2].partition(".")[0]
        return (
            f"the package that was imported was built for the CUDA of {found[1]}, which this "
            "environment does not have: install its build for the CUDA of the installed torch "
            "(torch.version.cuda; many projects offer wheels for each, such as cu12 and cu13), or pip "
            f"install {wheel} and add its lib folder to LD_LIBRARY_PATH if torch is for CUDA {cuda} too"
        )
    if found := _LIBRARY.search(raised.message):
        return (
            f"the loader does not find {found[1]}: add its folder to the process's LD_LIBRARY_PATH (find / "
            f"-name '{found[1]}*'), or install the package that contains it"
        )
    return ""


def without_toolkit(raised: Raised, place: Place) -> str:
    """Return advice on a path below CUDA_HOME that is built although no CUDA toolkit was found."""
    if raised.name != "TypeError" or "NoneType" not in raised.message:
        return ""
    if not any("CUDA_HOME" in frame.code for frame in raised.frames):
        return ""
    return (
        f"no CUDA toolkit was found, and {place.at} needs its nvcc: install the toolkit of torch's CUDA (an "
        "image whose name ends in -devel has it), and set CUDA_HOME to its folder before ray start on "
        "every node"
    )


def without_gpu(raised: Raised) -> str:
    """Return advice on code that uses a GPU in a process of verl that requests none."""
    if "No CUDA GPUs are available" not in raised.message or not _WITHOUT_GPU.match(raised.line.process):
        return ""
    return (
        f"do not use a GPU in {raised.line.process.partition(' ')[0]}, which requests none, so that Ray "
        "hides all from it: serve the model that scores or embeds as a server of its own (vllm serve, "
        "reward_model.enable) and call it over HTTP, or compute on the CPU"
    )


def kernel(raised: Raised) -> str:
    """Return how to find the kernel that failed, and how to do without the part of a package calling it."""
    if _KERNEL.search(raised.message) is None:
        return ""
    place = place_of(raised.frames)
    around = without_part(raised, place).removeprefix("or ")
    find = (
        "the failing call may be an earlier one than the traceback shows: run the step again with "
        "CUDA_LAUNCH_BLOCKING=1 (in the environment of ray start or env_vars of the runtime_env), and "
        "compute-sanitizer if that is not enough"
    )
    return "; ".join(filter(None, (around, find)))


def crashed(number: int, lines: Sequence[Line]) -> str:
    """Return advice on the package in which a process crashed.

    It is the package of the deepest place of the crashed thread that faulthandler prints below this line.
    """
    below = [line.text for line in lines if number < line.number <= number + _THREADS_LINES]
    stack = _stack_of_crashed(below)[:_CRASH_LINES]
    places = (Frame(found[1], int(found[2]), found[3]) for found in map(_CRASH.search, stack) if found)
    deepest = next((frame for frame in places if not STANDARD.search(frame.path)), None)
    package = package_of(deepest) if deepest is not None else ""
    if deepest is None or package in {"", "ray"}:
        return ""
    if _OF_NCCL.match(deepest.function):
        return (
            f"it crashed in NCCL ({deepest.function}, which {package} calls at {shown_at(deepest)}): run it "
            "again with NCCL_DEBUG=INFO, which prints the release and the path of the library that is "
            "loaded; load the one that torch brings (no other in LD_LIBRARY_PATH, LD_PRELOAD, "
            "VLLM_NCCL_SO_PATH or SGLANG_NCCL_SO_PATH, and the same on every node), try "
            "NCCL_CUMEM_ENABLE=0, or a newer release of NCCL"
        )
    if package == "torch" and deepest.path.endswith("/cuda/graphs.py"):
        return (
            f"it crashed while a CUDA graph was captured ({shown_at(deepest)}): do without graphs "
            "(rollout.enforce_eager=True, --enforce-eager, SGLang's --disable-cuda-graph); if it runs then, "
            "install a newer release of the engine with its torch, or a newer driver"
        )
    switch = switch_for(deepest.path) or (_OF_CRASHED if package == "vllm" else "")
    switch = f", or do without it ({switch})" if switch else ""
    return (
        f"it crashed in {package} ({shown_at(deepest)}, in {deepest.function}): install "
        f"{distribution(package)} again for this torch and this GPU, or a newer release{switch}"
    )


def _stack_of_crashed(below: Sequence[str]) -> Sequence[str]:
    """Return the lines from the stack of the thread that crashed on; none if only others are printed."""
    heads = [(at, found[1]) for at, text in enumerate(below) if (found := _THREAD.search(text))]
    if not heads or heads[0][0] >= _CRASH_LINES:
        return below
    crashed = next((at for at, name in heads if name == "Current thread"), None)
    return below[crashed:] if crashed is not None else below[: heads[0][0]]

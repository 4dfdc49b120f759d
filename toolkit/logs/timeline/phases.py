"""The phases of a job's start, and all texts by which the timeline of `verl-doctor logs` recognises them.

`*` stands for anything, `{s}` for a number of seconds. The texts are those of verl 0.2 to 0.9.1 (trainer/ppo,
single_controller/ray), vLLM 0.8.5 to 0.33 (v1/engine/core.py, v1/worker/gpu_model_runner.py,
model_executor/model_loader, compilation), SGLang 0.4.6 to 0.5.12 (srt/model_executor/model_runner.py), Ray
2.10 to 2.60 (_private/worker.py) and FlashInfer 0.6 (autotuner.py, jit).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Phase:
    """One kind of work.

    `letter` marks it in a text chart, `colour` is one of `svg`'s; `within` are the phases that contain it.
    """

    title: str
    letter: str
    colour: int
    within: tuple[str, ...] = ()
    helps: str = ""


LOG_PHASES = {
    "ray": Phase("Ray starts", "r", 7),
    "start": Phase(
        "process starts, imports",
        "i",
        1,
        helps="imports: verl-doctor warmup, and check --select PY103 (bytecode caches)",
    ),
    "data": Phase("data is read", "d", 5),
    "model": Phase(
        "model loads",
        "m",
        3,
        helps="loading: verl-doctor warmup --model DIR, and check --deep --select LOAD --model DIR",
    ),
    "download": Phase(
        "weights are downloaded", "m", 3, ("model",), helps="download the model once, beforehand"
    ),
    "weights": Phase("weights are read", "m", 3, ("model",)),
    "shards": Phase("shards are read", "m", 3, ("weights", "model")),
    "engine": Phase("engine is prepared", "e", 2),
    "compile": Phase(
        "torch.compile",
        "c",
        4,
        ("engine",),
        helps=(
            "compiling: verl-doctor warmup --engine, and check --select ENV104,CUDA135,CUDA137 (is its "
            "cache kept?)"
        ),
    ),
    "graph": Phase("a graph is compiled", "c", 4, ("compile", "engine")),
    "profile": Phase("memory is profiled", "e", 2, ("engine",)),
    "capture": Phase(
        "CUDA graphs are captured",
        "g",
        6,
        ("engine",),
        helps="CUDA graphs: fewer sizes to capture, or enforce_eager=True while debugging",
    ),
    "tune": Phase("kernels are tuned", "k", 4, ("engine",)),
    "kernels": Phase(
        "kernels are built", "k", 4, helps="kernels: verl-doctor warmup --engine, and check --select CUDA13"
    ),
    "validation": Phase(
        "validation before training", "v", 5, helps="trainer.val_before_train=False while debugging"
    ),
    "step": Phase("first step", "s", 6),
    "silence": Phase("nothing is logged", ".", 8),
}
"""All phases, in the order of a legend."""

DURATIONS = (
    ("download", "Time spent downloading weights for *: {s} seconds"),
    ("weights", "Loading weights took {s} seconds"),
    ("model", "Model loading took * and {s} seconds"),
    ("model", "Load weight end. elapsed={s} s"),
    ("graph", "Dynamo bytecode transform time: {s} s"),
    ("graph", "Compiling a graph for * takes {s} s"),
    ("graph", "Directly load the compiled graph* from the cache, took {s} s"),
    ("compile", "torch.compile takes {s} s in total"),
    ("compile", "torch.compile took {s} s in total"),
    ("profile", "Memory profiling takes {s} seconds"),
    ("profile", "Initial profiling/warmup run took {s} s"),
    ("capture", "Graph capturing finished in {s} secs"),
    ("capture", "graph end. Time elapsed: {s} s"),
    ("engine", "init engine (profile, create kv cache, warmup model) took {s} s"),
)
"""Lines that end a phase and report how long it took."""

BEGINS = (
    ("ray", "ray init kwargs: "),
    ("ray", "Connecting to existing Ray cluster at address: "),
    ("model", "Starting to load model "),
    ("model", "Load weight begin."),
    ("capture", "graph begin. This can take"),
    ("tune", "[Autotuner]: Autotuning process starts"),
    ("kernels", "Loading JIT ops: "),
    ("step", "Training Progress:"),
)
"""Lines that begin a phase whose length the process may not report."""

ENDS = (
    ("ray", "Started a local Ray instance."),
    ("ray", "Connected to Ray cluster."),
    ("model", "Model loading took "),
    ("model", "Load weight end."),
    ("tune", "[Autotuner]: Autotuning process ends"),
    ("kernels", "Finished loading JIT ops: "),
    ("validation", "Initial validation metrics: "),
)
"""Lines that end such a phase."""

BARS = (
    ("shards", "checkpoint shards:"),
    ("shards", "Multi-thread loading shards:"),
    ("shards", "Loading safetensors using "),
    ("shards", "Loading weights:"),
    ("capture", "Capturing CUDA graph"),
    ("capture", "Capturing batches"),
    ("capture", "Capturing prefill CUDA graph"),
    ("capture", "Capturing decode CUDA graph"),
    ("kernels", "DeepGEMM warmup:"),
    ("kernels", "JIT compile"),
    ("data", "Generating train split:"),
    ("data", "Filtering prompts longer than"),
    ("data", "Filter (num_proc="),
    ("data", "Map (num_proc="),
)
"""Labels of progress bars, which show the elapsed time."""

BREAKS = (
    ("start", "Disabled critic as algorithm"),
    ("start", "Using dataset class: "),
    ("data", "dataset len: "),
    ("data", "Size of train dataloader: "),
    ("data", "Total training steps: "),
    ("model", "contains * parameters"),
    ("model", "After FSDP, memory allocated"),
    ("model", "actor and ref model engine initialized"),
    ("model", "critic model engine initialized"),
    ("engine", "LLMServerManager: "),
    ("engine", "checkpoint engine manager initialized"),
)
"""Lines before which a process worked without output, and the kind of work."""

STEP = re.compile(rb"step:(\d{1,9}) - ")
"""How verl (utils/logger/aggregate_logger.py) begins the line with a step's metrics."""

_TIMING = re.compile(
    rb"(?<![\w/])timing(?:_s)?/([\w/]{1,40}):(?:np\.float\d+\()?(\d{1,9}(?:\.\d{1,20})?(?:e-\d\d)?)(?![\w.])"
)
RESTART = b"ray init kwargs: "
"""The first line of a verl job, printed since 0.5; a log to which jobs are appended has several."""

_BAR = re.compile(r"\[(?:(\d{1,4}):)?(\d{1,2}):(\d\d)[<,]")
_PERCENT = re.compile(r"\b(\d{1,3})%")
_NUMBER = r"(\d{1,9}(?:\.\d{1,9})?)"


@dataclass(frozen=True)
class PhaseReport:
    """What one line reports about a phase.

    It took `seconds` (`told`), began, ended, continues (`bar`), or took up the time until now (`break`).
    """

    phase: str
    kind: str
    seconds: float | None = None
    is_whole: bool = True


def phase_report_offsets(block: bytes) -> frozenset[int]:
    """Return the offsets of the lines that may report a phase; most do not."""
    found = set()
    for word in _bytes():
        at = block.find(word)
        while at >= 0:
            found.add(block.rfind(b"\n", 0, at) + 1)
            end = block.find(b"\n", at)
            at = block.find(word, end) if end >= 0 else -1
    return frozenset(found)


def phase_reports(text: str) -> list[PhaseReport]:
    """Return what the text of a line, without labels, reports; usually nothing."""
    words = next((word for word in _words() if word in text), None)
    if words is None:
        return []
    text = text.replace("**", "")  # Markdown bold, as in pasted logs
    found = [
        PhaseReport(phase, "told", float(match[1]))
        for phase, pattern in _patterns(DURATIONS)
        if (match := pattern.search(text))
    ][:1]
    for kind, table in (("begin", BEGINS), ("end", ENDS), ("break", BREAKS)):
        found += [PhaseReport(phase, kind) for phase, pattern in _patterns(table) if pattern.search(text)][:1]
    return [*found, *_bars(text)]


def _bars(text: str) -> list[PhaseReport]:
    """Return what a progress bar reports.

    A bar without a total has no percentage and is complete once it is printed.
    """
    phase, label = next(((phase, label) for phase, label in BARS if label in text), ("", ""))
    shown = text[text.index(label) :] if phase else ""
    if not (match := _BAR.search(shown)):
        return []
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    percent = _PERCENT.search(shown, 0, match.start())
    is_whole = percent is None or percent[1] == "100"
    return [PhaseReport(phase, "bar", hours * 3600 + minutes * 60 + seconds, is_whole)]


def parts_of_step(line: bytes) -> dict[str, float]:
    """Return the seconds that verl reports for a step's parts, by name; "step" is the whole."""
    return {name.decode(): float(seconds) for name, seconds in _TIMING.findall(line)}


@cache
def _bytes() -> tuple[bytes, ...]:
    others = (b"step:", b"pid:", b":actor_name:", RESTART, b"Actor creation task finished")
    return (*(word.encode() for word in _words()), *others)


@cache
def _words() -> tuple[str, ...]:
    """Return a piece of plain text of each pattern. Lines without any of these are skipped quickly."""
    every = [text for table in (DURATIONS, BEGINS, ENDS, BARS, BREAKS) for _, text in table]
    pieces = {max(re.split(r"\*|\{s\}", text), key=len) for text in every}
    return tuple(piece for piece in pieces if not any(other != piece and other in piece for other in pieces))


@cache
def _patterns(table: tuple[tuple[str, str], ...]) -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple(
        (phase, re.compile(re.escape(text).replace(r"\*", ".{0,300}?").replace(r"\{s\}", _NUMBER)))
        for phase, text in table
    )

"""A look with something in each place that a report shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_doctor.toolkit.collectors.compiled.torch_build import TorchBuild
from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus, Memory
from verl_doctor.toolkit.collectors.host.memory import HostMemory
from verl_doctor.toolkit.collectors.host.shared_memory import SharedMemory
from verl_doctor.toolkit.collectors.host.system import Processors, System
from verl_doctor.toolkit.collectors.installed.checkout import Checkout
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.collectors.kernels.cuda_toolkit import CudaToolkit
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.model.load_speed import LoadSpeed, Speed
from verl_doctor.toolkit.collectors.model.storage import ModelStorage
from verl_doctor.toolkit.collectors.network.network import Network, Resolved
from verl_doctor.toolkit.collectors.variables.effective_environment import (
    Effective,
    EffectiveEnvironment,
    Value,
)
from verl_doctor.toolkit.commands.report.network import Tried
from verl_doctor.toolkit.commands.report.seen import Seen
from verl_doctor.toolkit.comparison.comparison import Difference
from verl_doctor.toolkit.comparison.judge import Comparison
from verl_doctor.toolkit.facts import F, Unknown
from verl_doctor.toolkit.logs.answer import Answer
from verl_doctor.toolkit.logs.diagnosis import Reading
from verl_doctor.toolkit.logs.logged_error import LoggedError
from verl_doctor.toolkit.logs.signature import Signature
from verl_doctor.toolkit.logs.timeline.timeline import Proof, Span, Timeline, Worker
from verl_doctor.toolkit.result import CheckResult, NodeGroup, Nodes, Repair, Report
from verl_doctor.toolkit.rule import Evidence, Finding, Location, Unjudged
from verl_doctor.toolkit.snapshot.snapshot import Snapshot

GIB = 2**30


class Known:
    """Known facts; all others are unknown."""

    def __init__(self, *facts: object) -> None:
        self._facts: Mapping[type, Any] = {type(fact): fact for fact in facts}

    def get(self, fact: type[F]) -> F | Unknown:
        answer: F | Unknown = self._facts.get(fact, Unknown(f"nobody looked for {fact.__name__}"))
        return answer


def seen(said: str = "", node: str = "") -> Seen:
    """`said` stands at the end of each text that is shown, `node` is the name of a node."""
    return Seen(
        report=_report(said, node),
        facts=Known(*_facts(said, node)),
        version="0.1.0",
        taken="2026-11-22T01:00:00Z",
        log=_log(said),
        compared=Comparison(
            Snapshot({}, taken="2026-10-01T00:00:00Z", machine=node, path=f"old.json{said}"),
            Snapshot({}),
            (
                Difference(
                    "package",
                    f"vllm{said}",
                    f"0.8.5{said}",
                    f"0.12.0{said}",
                    node,
                    "breaks",
                    f"why{said}",
                    f"do{said}",
                ),
                Difference("kernel", f"release{said}", f"5.15{said}", f"6.1{said}", weight="noise"),
            ),
            (("PY101", f"it was wrong{said}"),),
            (f"nobody told{said}",),
            (f"lost{said}",),
        ),
        indexes=(Tried("pypi.org", 0.01, 0.2), Tried("nexus.company.example", 2.5, 1.0, f"no answer{said}")),
    )


def _report(said: str, node: str) -> Report:
    place = Location(f"/env/verl/x.py{said}", 7)
    bad = Finding(
        f"it is wrong{said}", Evidence(f"this{said}", f"that{said}", f"/there{said}"), place, f"repair it{said}", "error",
        "the-fix", ("async rollout",), phase="start", also=(place,), node=node or None,
    )  # fmt: skip
    hint = Finding(f"it could be better{said}", Evidence(f"this{said}"), severity="info")
    results = (
        CheckResult("VLLM101", f"A rule{said}", "fail", findings=(bad,), paths=("async rollout",)),
        CheckResult("PY105", f"A hint{said}", "pass", findings=(hint,)),
        CheckResult("PY102", f"A rule{said}", "skipped", f"nobody knows{said}"),
        CheckResult("PY103", f"A rule{said}", "error", f"it broke{said}", trace=f"Traceback{said}"),
        CheckResult("PY104", f"A rule{said}", "pass", unjudged=(Unjudged(f"a{said}", f"b{said}", place),)),
    )
    repair = Repair(
        "the-fix", "VLLM101", f"A repair{said}", "safe", "planned", f"because{said}",
        ({"kind": "replace_file", "path": f"/env/verl/x.py{said}"},),
        f"--- a/x{said}\n+++ b/x{said}\n@@ -1 +1 @@\n-old{said}\n+new{said}\n", f"Ray{said}",
    )  # fmt: skip
    target = {
        "python": f"/env/bin/python{said}",
        "chosen_by": f"--python{said}",
        "passed_over": f"/other{said}",
        "arguments": ["--python", f"/env/bin/python{said}"],
        "python_version": "3.11.7",
        "verl": {"folder": f"/env/verl{said}", "version": "0.6.1", "found_in": f"site{said}"},
        "vllm": None,
    }
    nodes = Nodes(2, 1, (NodeGroup(f"8 x H200{said}", 2, node),), (NodeGroup(f"no answer{said}", 1, node),))
    return Report(target, results, 0.5, {"the-fix": "safe"}, repairs=(repair,), nodes=nodes)


def _facts(said: str, node: str) -> tuple[object, ...]:
    tree = Tree(f"/env/verl{said}", "verl", f"0.6.1{said}", f"the current folder{said}")
    value = Value(f"value{said}")
    speed = Speed(GIB, 1.0)
    return (
        Interpreter(
            f"/env/bin/python{said}", "3.11.7", "cpython", "", "venv", "/env", (), (), "Linux", "x86_64", "2.36", "", "",
            compiler=f"GCC 12.2.0{said}", build=f"main{said}", bits=64,
        ),
        VerlTrees(tree, ""),
        Checkout("a" * 40, f"mine{said}"),
        Packages(
            tuple(
                Distribution(name, f"{version}{said}", f"/env/site/{name}{said}")
                for name, version in (("pip", "24.0"), ("ray", "2.49.2"), ("sglang", "0.5.5"), ("torch", "2.9.0"), ("vllm", "0.12.0"))
            )
        ),
        System("Linux", f"6.1.0{said}", f"#1 SMP{said}", node or "box", "x86_64", f"Debian{said}", Processors(f"AMD{said}", "", 64, 32, 2), (f"Model name: AMD{said}",)),
        Network(Resolved(node or "box")),
        TorchBuild("/env/torch", "2.9.0", f"12.8{said}"),
        CudaToolkit("/usr/local/cuda", "", f"/usr/local/cuda/bin/nvcc{said}", "12.8"),
        Gpus(tuple(Device(n, f"NVIDIA H200{said}", capability="9.0", memory=Memory(143771, 0, 143771)) for n in range(8)), "570.86", "12.8"),
        HostMemory(2048 * GIB, 1024 * GIB),
        SharedMemory(64 * GIB, 60 * GIB),
        Variables({"OMP_NUM_THREADS": f"1{said}", "CC": f"gcc{said}", "VERL_X": f"y{said}"}, ("HF_TOKEN",)),
        EffectiveEnvironment(
            (
                Effective("NCCL_DEBUG", value, (value,), (Value(f"other{said}"),), "verl", f"/env/verl/y.py{said}", 3),
                Effective("OMP_NUM_THREADS", value, (value,), (value,), "the driver"),
                Effective("PATH", value, (value,), (value,), "the driver"),
            ),
            standing=f"10.0.0.1{said}",
            verl=f"/env/verl/z.py{said}",
            unread=(f"nobody{said}",),
        ),
        ModelStorage(f"/models{said}", "nfs4", f"/mnt{said}", bytes=16 * GIB, cached=0),
        LoadSpeed(f"/models{said}", speed, speed, None, Speed(8 * GIB, 1.0)),
    )  # fmt: skip


def _log(said: str) -> Answer:
    known = Signature("CUDA102", "cause", "libcuda is a stub", (), remedy=f"take the stub away{said}")
    told = LoggedError(
        f"train.log{said}",
        12,
        f"WorkerDict pid=7{said}",
        f"cannot find -lcuda{said}",
        (f"ld: x{said}",),
        known,
    )
    other = LoggedError(f"train.log{said}", 99, f"x{said}", f"died{said}", (f"it died{said}",), None)
    proof = (Proof(f"train.log{said}", 5, f"loaded{said}"),)
    spans = (Span("model", 30.0, 10.0, "told", proof), Span("engine", 9.0, 45.0, "between", proof))
    worker = Worker(f"WorkerDict{said} pid=7", f"10.11.12.13{said}", spans)
    return Answer(
        Reading((told,), None, (), (other,), (), 120),
        (f"train.log{said}",),
        1200,
        (f"passed over{said}",),
        timeline=Timeline((worker,), (), 60.0, notes=(f"noted{said}",)),
    )

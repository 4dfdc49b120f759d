"""Miniatures of verl's async server, in the forms of releases and copies, and of vLLM's handling of RAY_ADDRESS."""

from __future__ import annotations

from textwrap import dedent, indent

_PARENT = """\

class Server:
    def start(self, arguments):
        config = arguments.create_engine_config()
        namespace = ray.get_runtime_context().namespace
        config.instance_id = f"{namespace}:{self.prefix}:{self.size}:{self.rank}"
        backend = os.environ.get("VERL_BACKEND", "zeromq")
        return Engine(config, executor=RayExecutor if backend == "ray" else None)
"""
_READS = 'namespace, prefix, size, rank = self.config.instance_id.split(":")\n'
_LOOKS = 'found = [name for name in ray.util.list_named_actors() if name.startswith(f"{prefix}WorkerDict")]\n'
_COUNTS = 'assert len(found) == int(size), f"{self.config.instance_id} has {len(found)} actors"\n'


def server(
    connects: str = "ray.init(namespace=namespace)\n",
    *,
    reads: str = _READS,
    looks: str = _LOOKS,
    counts: str = _COUNTS,
    imports: str = "import os\nimport ray\n",
    parent: str = _PARENT,
) -> str:
    """A server with an executor made of these parts."""
    body = f"{reads}{dedent(connects)}{looks}{counts}self.workers = [ray.get_actor(name) for name in found]\n"
    executor = f"class RayExecutor(Executor):\n    def _init_executor(self):\n{indent(body, ' ' * 8)}"
    return f"{imports}from vllm import Engine, Executor\n\n\n{executor}{parent}"


def chooses_process(*, unless_spawned: bool = True, behind: str = "") -> str:
    """Where vLLM chooses how to start processes, and hands on RAY_ADDRESS."""
    early = "    if os.environ.get('HOW') == 'spawn':\n        return\n" if unless_spawned else ""
    first = f"    if {behind}:\n        pass\n    elif in_actor():\n" if behind else "    if in_actor():\n"
    return f"import os\n\ndef choose():\n{early}{first}        os.environ['RAY_ADDRESS'] = ray.get_runtime_context().gcs_address\n"

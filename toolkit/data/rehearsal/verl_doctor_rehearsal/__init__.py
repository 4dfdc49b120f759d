"""Additions of a rehearsal to verl and vLLM, through the extension points of both.

The doctor copies this package into the private folder of a run and puts that on PYTHONPATH: no environment is
changed. It needs torch, verl and vLLM, and is imported only by their processes.

* `cpu_platform`: verl on a machine without a GPU. Imported through VERL_USE_EXTERNAL_MODULES.
* `cpu_rollout`: vLLM's CPU build under verl. An entry point of the group `vllm.general_plugins`.
* `witness`: records what really happens to the weights. Imported by both.
* `own_sockets`: sockets with names that no other job on this machine has.
* `reward`: rewards that differ between the responses to a prompt, so that a step has something to learn.
"""

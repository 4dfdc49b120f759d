"""What a rehearsal adds to verl and vLLM, through the extension points that each of them has.

The doctor copies this package into the private folder of a run and puts that on PYTHONPATH: nothing of it reaches an environment. It
needs torch, verl and vLLM, and is imported by their processes only.

* `cpu_platform`: verl on a machine without a GPU. Imported through VERL_USE_EXTERNAL_MODULES.
* `cpu_rollout`: vLLM's CPU build under verl. An entry point of the group `vllm.general_plugins`.
* `witness`: writes down what really happens to the weights. Imported by both.
* `own_sockets`: sockets under names that no other job on this machine has.
* `reward`: rewards that differ between the answers to a prompt, so that a step has something to learn.
"""

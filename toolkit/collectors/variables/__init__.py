"""Environment variables: what sets, reads and changes them on the way to the workers.

Several facts hold variables. Which one to use depends on the question:

| question | fact |
|---|---|
| what does this shell have? | `Variables` |
| which lines of launch files set or remove it? | `Launch.settings`; with the shell: `places` of the checks |
| what will each worker have, what decides it, is that certain? | `EffectiveEnvironment` |
| which single value counts for the job? | `JobVariables`: the workers' if certain, else the driver's |
| which value do gloo, NCCL or vLLM get, including NCCL's own files? | `NetworkVariables` |
| what does the driver have itself? Its workers inherit from a raylet | `launch.driver_variable` |
| which environment does a child need that stands in for a process of the job? | `child_environ` |
"""

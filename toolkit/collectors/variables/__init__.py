"""Environment variables: who sets, reads and changes them on the way to the workers.

Several facts know variables. Which one to use depends on the question:

| question | fact |
|---|---|
| what does this shell have? | `Variables` |
| which lines of launch files set or remove a variable? | `Launch.settings`; with the shell as one more place: `checks.shared.variables.places` |
| what will each worker have, who decides it, is that certain? | `EffectiveEnvironment` |
| which one value counts for the job? | `JobVariables`: the workers' where it is certain, else the driver's |
| which value do gloo, NCCL or vLLM get, NCCL's own files included? | `NetworkVariables` |
| what does the driver have itself? Its workers inherit from a raylet | `launch.driver_variable` |
| what does a child need that stands for a process of the job? | `child_environ` |
"""

"""Querying many nodes through Ray, ssh or srun, and judging their answers as one."""

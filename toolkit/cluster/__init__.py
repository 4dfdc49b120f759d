"""Queries many nodes through Ray, ssh or srun, and judges their responses together."""

"""Limits, CPUs, memory, and the folders that Ray and the job write to."""

"""Compiled packages: symbols, libraries, CUDA versions, glibc."""

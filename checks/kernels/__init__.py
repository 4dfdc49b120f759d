"""Compilers, Triton, FlashInfer, and caches of compiled code."""

"""CUDA as the job would find it: libcuda, the loader's path, cuInit, collectives."""

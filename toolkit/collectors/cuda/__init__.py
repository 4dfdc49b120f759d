"""The CUDA that the job would use: libcuda, the loader's path, cuInit, collectives."""

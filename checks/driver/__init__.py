"""The NVIDIA driver and its library, as the loader and the linker find it."""

"""The GPUs of this machine through NVML, the processes that hold them, and the driver's log."""

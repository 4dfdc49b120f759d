"""The GPUs of this machine through NVML, who holds them, and what the driver logged."""

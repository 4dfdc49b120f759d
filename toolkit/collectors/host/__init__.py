"""The machine: limits, memory, disks, clocks, folders."""

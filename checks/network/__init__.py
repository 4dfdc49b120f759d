"""Names, interfaces, InfiniBand, ports, proxies, NCCL."""

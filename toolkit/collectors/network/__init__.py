"""Interfaces, addresses and RDMA adapters."""

"""This machine: children, files, caches, sockets, processes, secrets."""

"""Access to this machine: children, files, caches, sockets, processes, secrets."""

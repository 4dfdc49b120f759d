"""Access to this machine: child programs, files, caches, sockets, processes, secrets."""

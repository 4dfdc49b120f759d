"""Launch scripts, runtime_env files and Dockerfiles: what they set and start."""

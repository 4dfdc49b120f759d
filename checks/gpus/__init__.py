"""The GPUs: health, memory, links, visibility, processes."""

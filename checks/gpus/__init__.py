"""The GPUs: health, memory, links, visibility, who uses them."""

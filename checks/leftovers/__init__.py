"""What dead jobs hold: files, processes, GPU memory, actors."""

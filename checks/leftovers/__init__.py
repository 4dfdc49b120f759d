"""What ended jobs leave behind: files, processes, GPU memory, actors."""

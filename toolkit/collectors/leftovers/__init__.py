"""What dead jobs left: processes, files, actors, with the signs of life of each."""

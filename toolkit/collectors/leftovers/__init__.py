"""What dead jobs left: processes, files and actors, each with its signs of life."""

"""Leftovers of dead jobs: processes, files and actors, each with its signs of life."""

"""Reads files into the page cache: chooses the files and their order, and verifies that they are cached."""

"""Makefiles, and the words after `make`."""

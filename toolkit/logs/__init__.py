"""Reads logs of any size: lines, exceptions, signatures, the first cause, and the timeline of a start."""

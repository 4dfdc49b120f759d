"""Advice on an exception, derived from its message and from where it was raised.

For example, the package that lacks a module, or the missing file.

A signature contains what helped others; these modules refer to what this log names, and return nothing if it
names nothing.
"""

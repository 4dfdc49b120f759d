"""Facts, the collectors that observe them, and the readers that collectors call, by subject.

A module with an `@collector` is loaded when its fact is needed; readers only when called.
"""

"""Finds values that validating code refuses, following its syntax trees with a configuration's values.

`values` are what code computes with, `settings` what the configuration holds and which keys were read,
`refused` what is raised, `changes` what code changes in place, `known_calls` functions that are computed,
`syntax` what is seen without values. `expressions`, `calls` and `statements` follow code, each upon the one
before, and `follower` functions and classes.
"""

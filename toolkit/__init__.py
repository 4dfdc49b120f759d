"""The engine of verl-doctor.

The root holds the public vocabulary (rule, facts, change, machine, marker, text, result, target, leftover,
testing); everything else lies in packages, whose imports run downwards only. No rule is named anywhere: the
engine finds them in `checks`, `patches` and plugins.
"""

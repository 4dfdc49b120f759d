"""The flow: register, collect, judge.

Sessions, configuration and facts files belong here. No rule is named here.
"""

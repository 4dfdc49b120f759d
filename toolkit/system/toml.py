"""TOML on every supported Python: the standard library's reader, or its predecessor on Python 3.10."""

import sys

if sys.version_info >= (3, 11):
    from tomllib import loads
else:
    from tomli import loads

__all__ = ["loads"]

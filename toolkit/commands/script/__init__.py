"""`script`: DEBUG and FAST_LOAD variants of a launch script."""

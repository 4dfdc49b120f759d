"""The exit codes that most commands share, as their help ends."""

EPILOG = "Exit codes: 0 NO FAULT FOUND, 1 WILL FAIL, 2 wrong usage, 3 NOT CHECKED."

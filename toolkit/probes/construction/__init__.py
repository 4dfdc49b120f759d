"""Builds, with verl's own code, everything that a job builds before it needs a GPU.

Runs under the target's interpreter, without network, Ray or GPU.
`main.run` reads a request, runs the stages in sequence and prints one JSON line as each begins and ends. A
stage finds the functions of verl that it calls in the installed tree (`find`); functions missing from a
release are not judged.
"""

"""Builds, with verl's own code, all that a job builds before it needs a GPU. Runs under the target's interpreter, without network, Ray or a GPU.

`main.run` reads a request, runs the stages one after the other and prints one JSON line as each begins and ends. A stage finds the
functions of verl that it calls in the installed tree (`find`), and one that a release does not have is not judged.
"""

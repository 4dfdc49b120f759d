"""The program that a command line finally starts, behind any wrappers.

Wrappers are, for example, `nohup`, `torchrun`, `docker run` and `ray job submit`.

`unwrap` strips them; each other module parses the words of one kind of wrapper.
"""

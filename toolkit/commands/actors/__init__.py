"""`actors`: the processes on this machine's GPUs, joined with the actors of the Ray clusters."""

"""`warmup`: read a job's files into memory before it starts."""

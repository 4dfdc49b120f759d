"""What verl uses of vLLM, Ray, transformers and others, and whether the installed ones have it."""

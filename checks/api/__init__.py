"""What verl uses of vLLM, Ray, transformers and others, and whether the installed versions have it."""

"""The installed vLLM: attention backends, engine arguments, loading, sleeping engines."""

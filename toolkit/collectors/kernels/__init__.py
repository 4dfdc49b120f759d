"""GPU code that is compiled when needed: Triton, FlashInfer, caches, the toolkit."""

"""`matrix`: which releases of verl and vLLM work together, and with this environment."""

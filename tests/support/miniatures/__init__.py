"""Packages of a few lines that represent verl, vLLM, Ray and torch."""

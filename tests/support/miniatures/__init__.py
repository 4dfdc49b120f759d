"""Packages of a few lines that stand for verl, vLLM, Ray and torch."""

"""Fixes of launch scripts and configuration files."""

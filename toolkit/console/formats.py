"""The forms in which `check` and `fix` report their results."""

from __future__ import annotations

FORMATS = ("text", "json", "markdown", "junit", "sarif", "github")

HEADLINE = "headline"
"""The form of --quiet: the first line of the text."""

"""Output: streams, escaping, progress, views, SVG. Everything that a user sees passes through here."""

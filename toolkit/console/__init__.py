"""Output: streams, escaping, progress, views, SVG. Everything a person sees passes through here."""

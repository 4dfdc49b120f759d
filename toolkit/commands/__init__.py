"""One package per command: `command` (the click function), its result, JSON document and renderers."""

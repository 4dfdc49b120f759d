"""One package per command: `command` (the click function), its result, its JSON document, and its renderers."""

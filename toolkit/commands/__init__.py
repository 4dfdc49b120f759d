"""One package a command: `command` (the click function), what it answers, its JSON document, and its renderers."""

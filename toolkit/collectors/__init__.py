"""Facts, the collectors that observe them, and the readers that collectors call, by subject. A module with an `@collector` is loaded at start; readers only when called."""

"""Options that several commands share, with their validation and the common exit codes."""

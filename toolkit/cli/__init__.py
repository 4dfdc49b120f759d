"""The command group: parses the first word, loads that command's package, turns errors into exit codes."""

"""The command group: it parses the first word, loads that command's package, and turns errors into exit codes."""

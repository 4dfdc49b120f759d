"""`explain` and its relatives: rules, plugins, schemas, completion, and the generated documentation."""

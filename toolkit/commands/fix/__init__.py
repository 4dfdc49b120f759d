"""`fix`: show the repairs as a diff, or carry them out."""

"""Environment variables: unknown, removed, overruled, lost on the way."""

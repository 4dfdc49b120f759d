"""The user's package index, and the sources of wheels, which are fetched by HTTP ranges into the cache."""

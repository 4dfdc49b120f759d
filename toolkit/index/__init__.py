"""The user's package index, and sources read out of wheels by HTTP ranges into the cache. It observes nothing."""

"""The change engine: the only code that writes into what is examined. Journal, locks, safe writes."""

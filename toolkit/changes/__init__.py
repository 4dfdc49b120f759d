"""The change engine, the only code that writes into the examined environment: journal, locks, safe writes."""

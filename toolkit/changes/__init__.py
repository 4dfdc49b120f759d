"""The change engine, the only code that writes to the examined environment: journal, locks, safe writes."""

"""The job's Hydra configuration, and how verl's classes and validation treat it."""

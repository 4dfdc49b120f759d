"""The job's Hydra configuration, and what verl's classes and validation make of it."""

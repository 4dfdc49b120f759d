"""What verl's own code raises for a job's configuration, followed without running it."""

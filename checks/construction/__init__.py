"""What verl's own code says when it builds the job (`check --deep`): a stage that breaks, hangs or crashes."""

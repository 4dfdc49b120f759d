"""The construction of the job by verl's own code (`check --deep`): a stage that fails, hangs or crashes."""

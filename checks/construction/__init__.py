"""The construction of the job by verl's own code (`check --deep`): stages that fail, hang or crash."""

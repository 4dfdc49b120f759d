"""`checklist`: the steps of a migration, each with its state and evidence."""

"""Whether conditions in the code of verl hold in a job, as far as its settings and variables decide it."""

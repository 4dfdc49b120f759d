"""`smoke`: a ladder of trials that ends at the first rung that breaks."""

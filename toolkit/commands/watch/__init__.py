"""`watch`: what will run out first, and when."""

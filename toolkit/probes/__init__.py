"""Scripts for the target's interpreter. They import none of verl-doctor's modules and are passed as text."""

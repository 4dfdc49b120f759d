"""Scripts for the target's interpreter. They import no module of verl-doctor and are passed as text."""

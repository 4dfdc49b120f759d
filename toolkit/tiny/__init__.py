"""Create tiny data sets, tokenizers and random models in the shapes that verl reads."""

"""Creates tiny data sets, tokenizers and random models in the formats that verl reads."""

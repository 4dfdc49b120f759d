"""The engine of verl-doctor. It knows no single rule: it finds them in `checks`, `patches` and plugins."""

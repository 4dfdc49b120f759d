"""The model's weights: format, storage, and how long loading takes."""

"""The findings of `smoke`'s rungs."""

"""The fifth rung: one step of verl's own trainer on tiny data, and the proof that weights moved."""

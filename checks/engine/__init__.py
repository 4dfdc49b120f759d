"""The engine process of verl's async rollout, and the Ray that it joins."""

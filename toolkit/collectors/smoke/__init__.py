"""What a climb of the smoke test showed, as a fact."""

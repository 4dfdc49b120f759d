"""`clean`: remove what dead jobs left behind, each item with its proof."""

"""Ray clusters: addresses, nodes, actors, worker groups, and what was left in them."""

"""How the time of a start was spent: clocks, processes and phases, on one scale."""

"""Where the time of a start went: clocks, processes and phases, on one scale."""

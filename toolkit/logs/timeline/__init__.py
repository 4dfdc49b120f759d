"""Where the time of a start went: clocks, processes and phases, put on one scale."""

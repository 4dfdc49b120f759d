"""`logs`: show the first cause of a failed run. Reading and judging logs is `toolkit/logs`."""

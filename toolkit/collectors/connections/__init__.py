"""The job's connections: heads, ports, proxies, and the variables that configure them."""

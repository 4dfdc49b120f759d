"""What the job connects to: heads, ports, proxies, and the variables that steer them."""

"""`environment`: the value of each variable in the driver, the raylet and the workers."""

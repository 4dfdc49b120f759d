"""Python, verl itself, bytecode, and the doctor's plugins."""

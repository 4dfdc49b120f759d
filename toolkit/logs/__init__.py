"""Reading logs of any size: lines, exceptions, signatures, the first cause, and the time line of a start."""

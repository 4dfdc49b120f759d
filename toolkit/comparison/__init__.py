"""Compare two machines or clusters.

It covers subjects, what differs, what it means, and which difference causes a finding.
"""

"""Compare two machines or clusters: subjects, what differs, what it means, and which difference causes a finding."""

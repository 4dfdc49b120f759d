"""What tests share: machines, environments, servers, processes made for a test."""

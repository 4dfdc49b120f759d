"""`patches`: list, verify, export and apply the patches of a source tree."""

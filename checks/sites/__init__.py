"""A cluster's own paths, as the configuration names them."""

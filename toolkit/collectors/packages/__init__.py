"""Packages against their records and requirements; installers, journals, manifests."""

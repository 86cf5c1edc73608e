"""Bundles that lie: mutated, sealed again with the right hashes, then loaded and queried."""

"""One head in several bundles, each of a range of its classes."""

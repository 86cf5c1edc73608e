"""The page about a bundle."""

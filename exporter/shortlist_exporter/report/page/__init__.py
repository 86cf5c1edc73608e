"""The page itself and its pictures."""

"""Heads inside `generate`: tokens a second, whose tokens stay the same, and what a draw costs."""

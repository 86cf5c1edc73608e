"""Heads that preview classes cheaply and score the best ones again."""

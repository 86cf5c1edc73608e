"""Adaptive and differentiated softmax: frequent classes first, rare ones in tails."""

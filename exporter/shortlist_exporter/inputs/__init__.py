"""What an export starts from: weights, contexts, their splits."""

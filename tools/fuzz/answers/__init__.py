"""Answers of heads of every method against brute force in float64, on layers that rounding and equal rows make hard."""

"""What the compiled loops share: integer products, selection, and how they are compiled."""

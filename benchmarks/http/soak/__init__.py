"""Ten minutes at twice the capacity, every answer checked."""

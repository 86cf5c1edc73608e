"""The compiled loops of plan `grouped`."""

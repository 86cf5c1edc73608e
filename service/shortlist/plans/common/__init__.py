"""What plans share: their interface, selection, exact rows."""

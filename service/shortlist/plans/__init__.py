"""Plans: the shapes that a head's computation can have at run time."""

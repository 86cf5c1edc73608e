"""A page to see a head by: the next words of a language model, by the head and by the dense layer, side by side."""

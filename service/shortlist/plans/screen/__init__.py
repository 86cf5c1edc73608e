"""Plan `screen`: a screen or a gate picks clusters or experts, whose classes are scored."""

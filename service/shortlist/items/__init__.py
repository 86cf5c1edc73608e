"""Live changes of a catalogue's items: a log on disk, and what a head answers by it until it is exported again."""

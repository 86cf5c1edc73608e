"""Routes that change what a catalogue holds."""

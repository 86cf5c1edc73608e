"""The Open Inference Protocol's format, for the server's codecs and the client alike."""

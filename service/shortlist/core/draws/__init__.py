"""What is drawn, and the noise that it is drawn by."""

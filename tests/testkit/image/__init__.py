"""Build the image in a folder, and run its programs."""

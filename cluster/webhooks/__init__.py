"""The webhook configurations: what they contain, whether they work and are unchanged, removal."""

"""Which pods rules may be about: their traits, in Python and in CEL."""

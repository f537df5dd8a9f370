"""The traits of pods that rules may be about, in Python and in CEL."""

"""Files that a running server reads again: policy, certificate, exceptions, inventory."""

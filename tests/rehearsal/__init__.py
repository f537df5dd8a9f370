"""Release what is committed on servers of this machine, and use it as a new user does.

`make release-rehearsal` runs these tests; no other command does.
"""

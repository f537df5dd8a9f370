"""The domain: what is wrong with a GPU manifest, and how to mend it.

Pure: nothing in here reads files, sockets, the clock or the environment.
"""

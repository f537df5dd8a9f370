"""`gpuward mcp`: a server for assistants, which speaks the Model Context Protocol.

`tools` says which tools there are, and which command each one runs; `folder` keeps paths and writes
inside of folders; `worker` runs a command in a process of its own, which `confinement` keeps from
reading elsewhere and from running anything; `server` is the adapter to the SDK.
"""

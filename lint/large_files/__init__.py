"""Read large files in parts: documents, and the items of a List, in flat memory."""

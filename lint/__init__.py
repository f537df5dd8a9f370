"""The linter: files in; findings and reports out."""

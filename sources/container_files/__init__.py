"""Files that are no manifests: which are linted, and what they give containers."""

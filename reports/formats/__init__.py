"""Reports: one module per format, each with `write(out, results, style)`."""

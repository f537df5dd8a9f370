"""Rules in CEL, the expression language in which API servers evaluate admission policies."""

"""The rules: `order` lists them with their modules, `index` without.

A program that needs a few rules starts from the index, and imports the module of a rule when the
rule first runs (docs/decisions/0031).
"""

"""The requirements of vendors' GPU features: versions, regions, operating systems, cards.

Each table is data with the page that it is from. `support` answers questions about them. A rule
imports these modules where it needs them and not at its top, so that a plain run of the linter
loads none of the tables.
"""

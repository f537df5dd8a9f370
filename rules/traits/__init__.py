"""Traits: the bits that say which rules can concern a pod."""

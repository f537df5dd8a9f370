"""The room on cards that schedulers divide, and the cards that pods get of them."""

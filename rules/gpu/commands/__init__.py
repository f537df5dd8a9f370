"""What commands of containers, scripts and files start, as far as rules read them."""

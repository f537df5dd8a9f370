"""Create, parse and validate certificates and keys. Functions here do no input or output."""

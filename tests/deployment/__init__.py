"""What an installation is made of: image, compose file."""

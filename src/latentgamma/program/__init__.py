"""What a program is; reading and writing it."""

"""What a program entails."""

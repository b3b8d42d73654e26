"""Global data to fields and back."""

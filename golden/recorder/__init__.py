"""What `golden/record` and `golden/check` share. Standard library only: they run with any Python."""

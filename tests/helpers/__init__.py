"""What several tests need to say their claim in few words."""

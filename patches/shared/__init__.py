"""What fixes of several families share."""

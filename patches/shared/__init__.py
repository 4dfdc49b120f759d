"""Code shared by fixes of several families."""

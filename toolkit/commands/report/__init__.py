"""`report`: a page to paste into an issue, with names masked."""

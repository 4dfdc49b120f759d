"""Pages of the site that are made from the code: rules, messages, commands, exit codes, schemas, the card.

They are written into folders that git ignores whenever the site is built. Nothing here needs Sphinx but
`extension`.
"""

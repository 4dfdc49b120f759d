"""`tiny`: write tiny data and a tiny model. Making them is `toolkit/tiny`."""

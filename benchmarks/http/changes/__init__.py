"""Items that come and go under query load: are they seen at once, kept for ever, and what do they cost?"""

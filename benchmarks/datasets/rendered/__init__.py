"""Characters drawn from fonts, and the small network that reads them: a balanced task of many classes."""

"""Plan `grouped`: previews of the classes in the best groups, then two rescorings."""

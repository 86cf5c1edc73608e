"""Results, queries, lists, arrays and checks that more than one package uses."""

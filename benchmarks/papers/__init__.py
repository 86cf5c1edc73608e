"""The papers' tables, reproduced: a folder a paper."""

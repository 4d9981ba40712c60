"""Rules as a layer behind a network: named groups of atoms in, named groups out."""

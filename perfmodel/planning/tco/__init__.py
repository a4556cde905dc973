"""What machines cost to make, to own and to rent, and how sure that is."""

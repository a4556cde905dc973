"""What a planner asks: how many, how fast, what it costs, what matters, and what a simulation says."""

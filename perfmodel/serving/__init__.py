"""From a step to a service."""

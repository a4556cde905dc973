"""What a YAML file says, validated, every number with its unit and source."""

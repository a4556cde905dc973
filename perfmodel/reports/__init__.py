"""The reports: figures by name, what they compute and judge, and their page."""

"""Agent2Agent: one model of its objects, and their JSON in the versions 1.0 and 0.3."""

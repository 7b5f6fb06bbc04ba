"""What is shipped to deploy the gateway."""

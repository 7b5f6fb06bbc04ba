"""Documents cut into chunks, with what each is about and what it mentions. Pure."""

"""How tools are displayed in lists: profiles, token budgets, shortened schemas."""

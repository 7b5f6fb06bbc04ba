"""Messages to operators about incidents, by webhook, Slack, Teams and mail."""

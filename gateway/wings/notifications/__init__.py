"""Messages to operators: what waits, has failed or ends, to webhooks, Slack, Teams and mail."""

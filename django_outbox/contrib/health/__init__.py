"""Health of the outbox for probes: a JSON view, and a check for django-health-check."""

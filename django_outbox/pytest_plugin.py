"""Fixtures for the tests of projects that use the outbox."""

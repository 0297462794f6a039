"""Publish to Kafka. Needs the extra ``kafka``: confluent-kafka is loaded at the first use."""

from django_outbox.publishers.kafka.publisher import KafkaPublisher

__all__ = ["KafkaPublisher"]

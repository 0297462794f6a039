from django.apps import AppConfig


class EncryptionAppConfig(AppConfig):
    name = "tests.encryptionapp"
    label = "encryptionapp"

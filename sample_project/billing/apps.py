from django.apps import AppConfig


class BillingConfig(AppConfig):
    name = "sample_project.billing"

from django.apps import AppConfig


class NotificationsConfig(AppConfig):
    name = "sample_project.notifications"

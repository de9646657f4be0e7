from django.apps import AppConfig


class MistakesConfig(AppConfig):
    name = "sample_project.mistakes"

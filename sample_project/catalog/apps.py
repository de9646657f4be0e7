from django.apps import AppConfig


class CatalogConfig(AppConfig):
    name = "sample_project.catalog"

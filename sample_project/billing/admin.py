"""The statements, to look at: tasks write them."""

from django.contrib import admin

from sample_project.billing.models import Statement


@admin.register(Statement)
class StatementAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ("account", "number", "order", "amount", "written_at")
    list_filter = ("account",)
    search_fields = ("order",)

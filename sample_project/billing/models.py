"""Statements: one for each order, numbered without gaps in each account."""

from __future__ import annotations

from decimal import Decimal

from django.db import models, transaction


class StatementQuerySet(models.QuerySet["Statement"]):
    def write(self, *, order: str, account: str, amount: Decimal) -> Statement:
        """The order's statement, written at most once however often this is called.

        Raises IntegrityError when another job took the account's next number at the same moment.
        """
        last = self.filter(account=account).aggregate(last=models.Max("number"))["last"] or 0
        with transaction.atomic():
            statement, _ = self.get_or_create(
                order=order, defaults={"account": account, "number": last + 1, "amount": amount}
            )
        return statement


class Statement(models.Model):
    order = models.CharField(max_length=40, unique=True)
    account = models.CharField(max_length=40)
    number = models.PositiveIntegerField()
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    written_at = models.DateTimeField(auto_now_add=True)

    objects = StatementQuerySet.as_manager()

    class Meta:
        ordering = ("account", "number")
        constraints = [
            models.UniqueConstraint(fields=("account", "number"), name="one_statement_for_each_number"),
        ]

    def __str__(self) -> str:
        return f"{self.account}/{self.number}"

"""Values as they differ from one failure to the next: ids, names, addresses, amounts. Drawn from a seed."""

from __future__ import annotations

from random import Random
from uuid import UUID

__all__ = ["Values"]

_NAMES = (
    "ada",
    "björn",
    "chloé",
    "dmitri",
    "emre",
    "françois",
    "grace",
    "hiro",
    "inès",
    "joão",
    "kofi",
    "zoë",
)
_WORDS = ("lamp", "chair", "table", "kettle", "poster", "carpet", "mirror", "basket", "candle", "blanket")


class Values:
    """Draws values; the same seed draws the same."""

    def __init__(self, seed: str) -> None:
        self.random = Random(seed)

    def number(self, low: int = 1, high: int = 9_999_999) -> int:
        return self.random.randint(low, high)

    def uuid(self) -> str:
        return str(UUID(int=self.random.getrandbits(128), version=4))

    def name(self) -> str:
        return self.random.choice(_NAMES)

    def word(self) -> str:
        return self.random.choice(_WORDS)

    def words(self, low: int = 1, high: int = 5) -> list[str]:
        return [self.word() for _ in range(self.number(low, high))]

    def full_name(self) -> str:
        return f"{self.name().title()} {self.word().title()}son"

    def email(self) -> str:
        ascii_name = self.name().encode("ascii", "ignore").decode()
        return f"{ascii_name}.{self.number(1, 99999)}@{self.word()}.example"

    def sku(self) -> str:
        return f"{self.word().upper()}-{self.number(10, 9999)}"

    def order(self) -> str:
        return f"A-{self.number(10000, 99999999)}"

    def hexed(self, digits: int = 12) -> str:
        return f"{self.random.getrandbits(digits * 4):0{digits}x}"

    def amount(self) -> str:
        return f"{self.number(1, 9999)}.{self.number(10, 99)}"

    def ip(self) -> str:
        """A loopback address at which nobody listens."""
        return f"127.{self.number(1, 254)}.{self.number(1, 254)}.{self.number(2, 254)}"

    def port(self) -> int:
        """A port that nobody listens at."""
        return self.number(81, 990)

    def host(self) -> str:
        return f"{self.word()}-{self.number(1, 30)}.shop.invalid"

    def day(self) -> str:
        return f"20{self.number(20, 26)}-{self.number(1, 12):02d}-{self.number(1, 28):02d}"

    def path(self) -> str:
        return f"/srv/data/{self.word()}/{self.number(1000, 9999)}/{self.uuid()[:8]}.csv"

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def line(self) -> dict[str, object]:
        return {
            "sku": self.sku(),
            "price": self.number(1, 99),
            "count": self.number(1, 9),
            "position": self.number(),
        }

    def lines(self, low: int = 1, high: int = 6) -> list[dict[str, object]]:
        return [self.line() for _ in range(self.number(low, high))]

    def lines_without(self, key: str) -> list[dict[str, object]]:
        """Lines, the last of which lacks a key."""
        lines = self.lines()
        del lines[-1][key]
        return lines

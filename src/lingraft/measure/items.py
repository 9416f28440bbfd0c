"""A stream of random choices that is the same on every machine and in every version of Python.

Choices come from SHA-256 of a key and a counter, by rejection: no module whose algorithm may change has a part in it.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import TypeVar

from lingraft.errors import MeasurementError

__all__ = ["ItemStream"]

T = TypeVar("T")


class ItemStream:
    """Random choices for one item.

    Args:
        key: whatever names the item (suite, seed, task, index); equal keys give equal choices.
    """

    def __init__(self, *key: str | int) -> None:
        self._words = _words("/".join(map(str, key)).encode())

    def below(self, bound: int) -> int:
        """Return a whole number in ``range(bound)``, each equally likely.

        Raises:
            MeasurementError: the bound is not positive.
        """
        if bound <= 0:
            raise MeasurementError(f"nothing can be drawn from range({bound})")
        limit = 2**64 - 2**64 % bound
        return next(word for word in self._words if word < limit) % bound

    def sample(self, population: Sequence[T], count: int) -> list[T]:
        """Return ``count`` different members, in random order.

        Raises:
            MeasurementError: the population is smaller than that.
        """
        if count > len(population):
            raise MeasurementError(f"{count} different members of {len(population)} cannot be drawn")
        pool = list(population)
        for position in range(count):
            other = position + self.below(len(pool) - position)
            pool[position], pool[other] = pool[other], pool[position]
        return pool[:count]

    def shuffled(self, population: Sequence[T]) -> list[T]:
        """Return all members in random order."""
        return self.sample(population, len(population))


def _words(key: bytes) -> Iterator[int]:
    counter = 0
    while True:
        block = hashlib.sha256(key + b"#" + str(counter).encode()).digest()
        yield from (int.from_bytes(block[n : n + 8], "big") for n in range(0, 32, 8))
        counter += 1

"""Work on the processes of a Dask cluster: the same results, in the same order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, TypeVar

from gpt2np.errors import InputError
from gpt2np.loading import Model

Item = TypeVar("Item")
Result = TypeVar("Result")


def on_workers(
    where: str,
    function: Callable[[Item, Model], Result],
    items: Sequence[Item],
    model: Model,
) -> Iterator[Result]:
    """Give function(item, model) of every item, in their order.

    The model goes to the workers as its source, and each opens its files once. What a lost worker
    had done or begun is done again by another: Dask sees to that.

    Parameters
    ----------
    where : str
        "local" for processes of this machine, else the address of a scheduler.
    """
    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        raise InputError("--dask needs Dask: pip install 'gpt2np[cluster]'") from None
    try:
        client = distributed.Client(
            **({"threads_per_worker": 1} if where == "local" else {"address": where})
        )
    except (OSError, ValueError) as error:
        raise InputError(f"there is no Dask scheduler at {where}: {error}") from None
    with client:
        # A few for each worker at a time, so that a corpus does not lie in memory.
        ahead = 4 * max(1, len(client.scheduler_info()["workers"]))
        waiting: deque[Any] = deque()
        for item in items:
            waiting.append(client.submit(function, item, model, pure=False, retries=3))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

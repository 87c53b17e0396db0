"""A pickle machine that can only build plain data: it imports nothing and runs nothing.

It knows the opcodes that torch.save emits, and the names that it is given. Python's own Unpickler
would not do: even with find_class overridden, a few bytes make it fill the memory (a huge memo
index) or hash for ever (nested tuples as the key of a dictionary).
"""

import pickle
import struct
from collections.abc import Callable, Mapping
from typing import Any

from gpt2np.checkpoints.base import Bytes, quote
from gpt2np.errors import CheckpointError

MAX_OPCODES = 300_000  # GPT-2 XL with its optimizer takes some 80,000


def load(
    data: Bytes,
    where: str,
    names: Mapping[str, Any] | None = None,
    persistent: Callable[[Any], Any] | None = None,
) -> tuple[Any, int]:
    """The object that the pickle at the start of `data` describes, and where the pickle ends.

    `names` gives what each "module.name" stands for: data, or a function that may be called.
    `persistent` makes an object of a persistent id.
    """
    machine = Machine(data, names or {}, persistent)
    try:
        return machine.run(), machine.position
    except (ValueError, LookupError, TypeError) as error:
        raise CheckpointError(f"the pickle in {where} cannot be read: {error}") from error


class Machine:
    """The pickle virtual machine: a stack, the marks on it, and a memo."""

    def __init__(
        self, data: Bytes, names: Mapping[str, Any], persistent: Callable[[Any], Any] | None
    ) -> None:
        self.data, self.position = data.data, 0
        self.names, self.persistent = names, persistent
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        for _ in range(MAX_OPCODES):
            opcode = self.take(1)
            if opcode == pickle.STOP:
                return self.stack.pop()
            if opcode not in ACTIONS:
                raise CheckpointError(f"it has the opcode {opcode!r}, which no tensor needs")
            ACTIONS[opcode](self)
        raise CheckpointError(f"it has more than {MAX_OPCODES} opcodes")

    def take(self, size: int) -> bytes:
        piece = self.data[self.position : self.position + size].tobytes()
        if len(piece) < size:
            raise CheckpointError("it ends too early")
        self.position += size
        return piece

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def counted(self, form: str) -> bytes:
        return self.take(self.number(form))

    def integer(self, form: str) -> int:
        return int.from_bytes(self.counted(form), "little", signed=True)

    def text(self, form: str) -> str:
        return self.counted(form).decode("utf-8", "surrogatepass")

    def line(self) -> str:
        size = self.data[self.position : self.position + 256].tobytes().find(b"\n")
        if size < 0:
            raise CheckpointError("it refers to a name of more than 256 bytes")
        return self.take(size + 1)[:-1].decode("utf-8")

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def mark(self) -> None:
        self.marks.append(len(self.stack))

    def pop(self, count: int) -> list[Any]:
        return [self.stack.pop() for _ in range(count)][::-1]

    def pop_to_mark(self) -> list[Any]:
        return self.pop(len(self.stack) - self.marks.pop())

    def put(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def get(self, index: int) -> None:
        if index not in self.memo:
            raise CheckpointError(f"it recalls object {index}, which it never stored")
        self.stack.append(self.memo[index])

    def extend(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise CheckpointError("it appends to what is no list")
        self.stack[-1].extend(items)

    def update(self, items: list[Any]) -> None:
        update(self.stack[-1], items)

    def find(self, module: Any, name: Any) -> Any:
        full = f"{module}.{name}" if type(module) is type(name) is str else "a name that is no text"
        if full not in self.names:
            raise CheckpointError(
                f"it refers to {quote(full)}, which is no part of a tensor and is not run: "
                "load the file in torch and save model.state_dict()"
            )
        return self.names[full]

    def refer(self, identity: Any) -> Any:
        if self.persistent is None:
            raise CheckpointError("it refers to a storage where there can be none")
        return self.persistent(identity)

    def call(self, function: Any, arguments: Any) -> Any:
        if not callable(function) or type(arguments) is not tuple:
            raise CheckpointError("it calls what is no function")
        return function(*arguments)


def update(target: Any, items: list[Any]) -> None:
    """Set keys and values, which alternate; only plain keys, which are hashed in no time."""
    if type(target) is not dict or len(items) % 2:
        raise CheckpointError("it sets an item of what is no dictionary")
    for key, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(key, str | int | float | None):
            raise CheckpointError(f"it has {quote(key)} as the key of a dictionary")
        target[key] = value


ACTIONS: dict[bytes, Callable[[Machine], object]] = {
    pickle.PROTO:            lambda m: m.take(1),
    pickle.FRAME:            lambda m: m.take(8),
    pickle.NONE:             lambda m: m.push(None),
    pickle.NEWTRUE:          lambda m: m.push(True),
    pickle.NEWFALSE:         lambda m: m.push(False),
    pickle.BININT:           lambda m: m.push(m.number("<i")),
    pickle.BININT1:          lambda m: m.push(m.number("<B")),
    pickle.BININT2:          lambda m: m.push(m.number("<H")),
    pickle.LONG1:            lambda m: m.push(m.integer("<B")),
    pickle.BINFLOAT:         lambda m: m.push(m.number(">d")),
    pickle.BINUNICODE:       lambda m: m.push(m.text("<I")),
    pickle.SHORT_BINUNICODE: lambda m: m.push(m.text("<B")),
    pickle.BINUNICODE8:      lambda m: m.push(m.text("<Q")),
    pickle.MARK:             lambda m: m.mark(),
    pickle.EMPTY_TUPLE:      lambda m: m.push(()),
    pickle.TUPLE1:           lambda m: m.push(tuple(m.pop(1))),
    pickle.TUPLE2:           lambda m: m.push(tuple(m.pop(2))),
    pickle.TUPLE3:           lambda m: m.push(tuple(m.pop(3))),
    pickle.TUPLE:            lambda m: m.push(tuple(m.pop_to_mark())),
    pickle.EMPTY_LIST:       lambda m: m.push([]),
    pickle.APPEND:           lambda m: m.extend(m.pop(1)),
    pickle.APPENDS:          lambda m: m.extend(m.pop_to_mark()),
    pickle.EMPTY_DICT:       lambda m: m.push({}),
    pickle.SETITEM:          lambda m: m.update(m.pop(2)),
    pickle.SETITEMS:         lambda m: m.update(m.pop_to_mark()),
    pickle.BINPUT:           lambda m: m.put(m.number("<B")),
    pickle.LONG_BINPUT:      lambda m: m.put(m.number("<I")),
    pickle.MEMOIZE:          lambda m: m.put(len(m.memo)),
    pickle.BINGET:           lambda m: m.get(m.number("<B")),
    pickle.LONG_BINGET:      lambda m: m.get(m.number("<I")),
    pickle.GLOBAL:           lambda m: m.push(m.find(m.line(), m.line())),
    pickle.STACK_GLOBAL:     lambda m: m.push(m.find(*m.pop(2))),
    pickle.BINPERSID:        lambda m: m.push(m.refer(*m.pop(1))),
    pickle.REDUCE:           lambda m: m.push(m.call(*m.pop(2))),
    pickle.BUILD:            lambda m: m.pop(1),  # a state dict's _metadata: not needed
}  # fmt: skip

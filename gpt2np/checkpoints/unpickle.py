"""A pickle machine that can only build plain data: it imports nothing and runs nothing.

pickletools decodes the opcodes, and what they do is done here. Python's own Unpickler would not
do: even with find_class overridden, a few bytes make it fill the memory (a huge memo index, a copy
of a copy) or hash for ever (nested tuples as the key of a dictionary).
"""

import pickletools
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import IO, Any, cast

from gpt2np.checkpoints.base import Bytes, quote
from gpt2np.errors import CheckpointError

MAX_OPCODES = 6_000_000  # GPT-2 XL with its optimizer takes some 80,000; losses, one each

# What is built may take so many bytes: to begin with, for each that was read, and in all. Small
# numbers take 20 for each of theirs, and nothing real takes more.
FIRST_MEMORY, MEMORY_PER_BYTE, MAX_MEMORY = 16 << 20, 24, 500 << 20

MAX_LINE = 10_000  # only names, and numbers of Python 2, stand on lines


class Inert:
    """What stands for an object that is not built: what it would be, of what, and its state."""

    __slots__ = ("arguments", "items", "name", "state")

    def __init__(self, name: str, arguments: tuple[Any, ...] = ()) -> None:
        self.name, self.arguments = name, arguments
        self.state: Any = None
        self.items: dict[Any, Any] = {}

    def values(self) -> dict[Any, Any]:
        """Give its attributes and, of a kind of dictionary, its items."""
        parts = self.state if type(self.state) is tuple else (self.state,)  # with slots: two
        states = [part for part in parts[:2] if type(part) is dict]
        return {key: value for part in (*states, self.items) for key, value in part.items()}


class Stream:
    """The bytes of a mapped file, one after another, as pickletools reads them."""

    def __init__(self, data: Bytes) -> None:
        self.data, self.position = data.data, 0

    def read(self, size: int) -> bytes:
        start, self.position = self.position, self.position + size
        return self.data[start : self.position].tobytes()

    def readline(self) -> bytes:
        size = self.data[self.position : self.position + MAX_LINE].tobytes().find(b"\n")
        if size < 0:
            raise CheckpointError(f"it has a line of more than {MAX_LINE} bytes")
        line = self.read(size + 1)
        if b"\\" in line:  # pickletools would warn of what it does not mean
            raise CheckpointError("it has a line with a backslash, which no name has")
        return line


class Machine:
    """The pickle virtual machine: a stack, the marks on it, and a memo.

    Parameters
    ----------
    data : all the pickles that it may read, one after another.
    names : what each "module.name" stands for: data, or a function that may be called.
    persistent : makes an object of a persistent id.
    """

    def __init__(
        self,
        data: Bytes,
        names: Mapping[str, Any],
        persistent: Callable[[Any], Any] | None = None,
    ) -> None:
        self.stream = Stream(data)
        self.names, self.persistent = names, persistent
        self.opcodes = self.memory = 0

    def load(self, where: str) -> Any:
        """Give the object that the next pickle describes."""
        try:
            return self.run()
        except (ValueError, LookupError, TypeError, OverflowError) as error:
            raise CheckpointError(f"the pickle in {where} cannot be read: {error}") from error

    def run(self) -> Any:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: list[Any] = []
        for opcode, argument, _ in pickletools.genops(cast(IO[bytes], self.stream)):
            self.opcodes += 1
            if self.opcodes > MAX_OPCODES:
                raise CheckpointError(f"it has more than {MAX_OPCODES} opcodes")
            if opcode.name == "STOP":
                return self.stack.pop()
            if opcode.name not in ACTIONS:
                raise CheckpointError(f"it has the opcode {opcode.name}, which no checkpoint needs")
            ACTIONS[opcode.name](self, argument)
        raise CheckpointError("it ends too early")

    def take(self, memory: int) -> None:
        """Count the memory, or the steps, that something takes."""
        self.memory += memory
        allowed = FIRST_MEMORY + MEMORY_PER_BYTE * self.stream.position
        if self.memory > min(allowed, MAX_MEMORY):
            raise CheckpointError("it unfolds to far more than the file holds")

    def push(self, value: Any) -> None:
        self.take(sys.getsizeof(value))
        self.stack.append(value)

    def mark(self) -> None:
        self.take(8)
        self.marks.append(len(self.stack))

    def pop(self, count: int) -> list[Any]:
        return [self.stack.pop() for _ in range(count)][::-1]

    def pop_to_mark(self) -> list[Any]:
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def discard(self) -> None:
        if self.marks and self.marks[-1] == len(self.stack):
            self.marks.pop()
        else:
            self.stack.pop()

    def put(self, index: int) -> None:
        missing = index + 1 - len(self.memo)
        if missing > 0:  # by one, in order, but that Python 2 began at 1
            self.take(8 * missing)
            self.memo += [NOTHING] * missing
        self.memo[index] = self.stack[-1]

    def get(self, index: int) -> None:
        if not 0 <= index < len(self.memo) or self.memo[index] is NOTHING:
            raise CheckpointError(f"it recalls object {quote(index)}, which it never stored")
        self.take(8)
        self.stack.append(self.memo[index])

    def extend(self, items: list[Any]) -> None:
        self.take(9 * len(items))
        if type(self.stack[-1]) is list:
            self.stack[-1].extend(items)
        elif type(self.stack[-1]) is not Inert:
            raise CheckpointError("it appends to what is no list")

    def update(self, items: list[Any]) -> None:
        target = self.stack[-1]
        target = target.items if type(target) is Inert else target
        if type(target) is not dict or len(items) % 2:
            raise CheckpointError("it sets an item of what is no dictionary")
        self.set_items(target, zip(items[::2], items[1::2], strict=True))

    def set_items(self, target: dict[Any, Any], items: Iterable[tuple[Any, Any]]) -> None:
        """Set keys that are hashed and compared in no time; what has another is left out."""
        for key, value in items:
            self.take(100 + len(key) if isinstance(key, str) else 100)
            if isinstance(key, str | float | None) or (
                isinstance(key, int) and key.bit_length() <= 64  # beyond, millions share a hash
            ):
                target[key] = value

    def dictionary(self) -> None:
        items = self.pop_to_mark()
        self.push({})
        self.update(items)

    def find(self, module: Any, name: Any) -> None:
        """What is not known is named, and never looked for."""
        full = f"{module}.{name}" if type(module) is type(name) is str else "a name that is no text"
        self.push(self.names[full] if full in self.names else Inert(full))

    def refer(self, identity: Any) -> None:
        if self.persistent is None:
            raise CheckpointError("it refers to a storage where there can be none")
        self.push(self.persistent(identity))

    def call(self, function: Any, arguments: Any, *_: Any) -> None:
        if type(arguments) is not tuple:
            raise CheckpointError("it calls with what are no arguments")
        for argument in arguments:  # which the function may go through
            self.take(8 * len(argument) if isinstance(argument, str | tuple | list | dict) else 8)
        if type(function) is Inert:
            self.push(Inert(function.name, arguments))
        elif function is dict:
            self.push({})
            self.set_items(self.stack[-1], *arguments or [()])
        elif callable(function):
            self.push(function(*arguments))
        else:
            raise CheckpointError("it calls what is no function")

    def build(self, state: Any) -> None:
        if type(self.stack[-1]) is Inert:
            self.stack[-1].state = state
        # Else a state dict's _metadata: not needed.


NOTHING = object()  # in the memo, where nothing was put

ACTIONS: dict[str, Callable[[Machine, Any], object]] = {
    "PROTO":           lambda m, _: None,
    "FRAME":           lambda m, _: None,
    "MARK":            lambda m, _: m.mark(),
    "NONE":            lambda m, _: m.push(None),
    "NEWTRUE":         lambda m, _: m.push(True),
    "NEWFALSE":        lambda m, _: m.push(False),
    "EMPTY_TUPLE":     lambda m, _: m.push(()),
    "TUPLE1":          lambda m, _: m.push(tuple(m.pop(1))),
    "TUPLE2":          lambda m, _: m.push(tuple(m.pop(2))),
    "TUPLE3":          lambda m, _: m.push(tuple(m.pop(3))),
    "TUPLE":           lambda m, _: m.push(tuple(m.pop_to_mark())),
    "EMPTY_LIST":      lambda m, _: m.push([]),
    "LIST":            lambda m, _: m.push(m.pop_to_mark()),
    "APPEND":          lambda m, _: m.extend(m.pop(1)),
    "APPENDS":         lambda m, _: m.extend(m.pop_to_mark()),
    "EMPTY_SET":       lambda m, _: m.push([]),  # a list will do, and hashes nothing
    "ADDITEMS":        lambda m, _: m.extend(m.pop_to_mark()),
    "FROZENSET":       lambda m, _: m.push(m.pop_to_mark()),
    "EMPTY_DICT":      lambda m, _: m.push({}),
    "DICT":            lambda m, _: m.dictionary(),
    "SETITEM":         lambda m, _: m.update(m.pop(2)),
    "SETITEMS":        lambda m, _: m.update(m.pop_to_mark()),
    "POP":             lambda m, _: m.discard(),
    "POP_MARK":        lambda m, _: m.pop_to_mark(),
    "DUP":             lambda m, _: m.push(m.stack[-1]),
    "PUT":             lambda m, index: m.put(index),
    "BINPUT":          lambda m, index: m.put(index),
    "LONG_BINPUT":     lambda m, index: m.put(index),
    "MEMOIZE":         lambda m, _: m.put(len(m.memo)),
    "GET":             lambda m, index: m.get(index),
    "BINGET":          lambda m, index: m.get(index),
    "LONG_BINGET":     lambda m, index: m.get(index),
    "GLOBAL":          lambda m, name: m.find(*name.split(" ", 1)),
    "STACK_GLOBAL":    lambda m, _: m.find(*m.pop(2)),
    "BINPERSID":       lambda m, _: m.refer(*m.pop(1)),
    "REDUCE":          lambda m, _: m.call(*m.pop(2)),
    "NEWOBJ":          lambda m, _: m.call(*m.pop(2)),
    "NEWOBJ_EX":       lambda m, _: m.call(*m.pop(3)),
    "BUILD":           lambda m, _: m.build(*m.pop(1)),
}  # fmt: skip
PLAIN = (
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING "
    "UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8"
)
ACTIONS |= dict.fromkeys(PLAIN.split(), Machine.push)

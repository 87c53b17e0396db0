"""gpt2np tokenize: the tokens of a text, or the text of tokens."""

from __future__ import annotations

import argparse
import json

from gpt2np.commands import add_output, add_text, read_text
from gpt2np.errors import InputError
from gpt2np.loading import find_tokenizer
from gpt2np.tokenizer import Tokenizer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    given = parser.add_mutually_exclusive_group(required=True)
    add_text(given, "text", 'the text; "-" reads standard input')
    given.add_argument("-f", "--file", metavar="FILE", help="a file with the text, in UTF-8")
    given.add_argument(
        "--decode",
        nargs="+",
        metavar="ID",
        help='show the text of token ids; "-" reads them from standard input',
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--ids", action="store_true", help="show the ids alone, on one line")
    shown.add_argument(
        "--json",
        action="store_true",
        help="show one JSON object: ids, tokens, bytes (in hexadecimal)",
    )
    parser.add_argument(
        "--special",
        action="store_true",
        help="<|endoftext|> in the text is that token, not the plain text it is otherwise",
    )
    parser.add_argument(
        "-m",
        "--model",
        "--tokenizer",
        metavar="SOURCE",
        help="the model whose tokenizer to use, or a folder with its files; "
        "GPT-2's own unless given",
    )
    add_output(parser)


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    if args.decode:
        ids = _ids(read_text("-").split() if args.decode == ["-"] else args.decode)
        tokenizer = find_tokenizer(args.model or "gpt2")
        text = tokenizer.decode(ids)
        print(_json(tokenizer, ids, {"text": text}) if args.json else text)
        return
    content = read_text(args.file or "-") if args.text in (None, "-") else args.text
    tokenizer = find_tokenizer(args.model or "gpt2")
    ids = tokenizer.encode(content, special=args.special)
    if args.ids:
        print(*ids)
    elif args.json:
        print(_json(tokenizer, ids))
    else:
        _print_table(tokenizer, ids)


def _json(tokenizer: Tokenizer, ids: list[int], text: dict[str, str] | None = None) -> str:
    return json.dumps({
        **(text or {}),
        "ids":    ids,
        "tokens": [tokenizer.decode([id]) for id in ids],
        "bytes":  [tokenizer.token_bytes(id).hex() for id in ids],
    }, ensure_ascii=False)  # fmt: skip


def _ids(words: list[str]) -> list[int]:
    for word in words:
        if not (word.isascii() and word.isdigit() and len(word) < 20):
            raise InputError(f"{word!r} is not a token id; give whole numbers with spaces between")
    return [int(word) for word in words]


def _print_table(tokenizer: Tokenizer, ids: list[int]) -> None:
    """Print a token a line; a piece that is no whole characters shows as bytes."""
    tokens = [tokenizer.token_bytes(id) for id in ids]
    width = min(max((3 * len(token) for token in tokens), default=0), 36)
    print(f"{'id':>6}  {'bytes':<{width}} piece")
    for id, token in zip(ids, tokens, strict=True):
        print(f"{id:>6}  {token.hex(' '):<{width}} {_piece(token)}")
    print(f"tokens: {len(ids)}, bytes: {sum(map(len, tokens))}")


def _piece(token: bytes) -> str:
    try:
        return repr(token.decode("utf-8"))
    except UnicodeDecodeError:
        return repr(token)

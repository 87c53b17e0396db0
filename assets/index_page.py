"""README.md as a package index shows it: no picture and no link that leads into the repository."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class IndexPage(MetadataHookInterface):
    """What pyproject.toml names as a hook for the metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Put the page where the contents of README.md would be."""
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": index_page(readme)}


def index_page(readme: str) -> str:
    """Give the page: a file of the repository is named, not linked.

    >>> index_page("[a.py][a], [b](https://b)\\n![A picture](c.png)\\n\\n[a]: a.py\\n")
    '`a.py`, [b](https://b)\\n'
    """
    text = re.sub(r"^!\[[^\]]*\]\((?!https:)[^)]*\)\n+", "", readme, flags=re.MULTILINE)
    inside = set(re.findall(r"^\[(\w+)\]: (?!https:)", text, re.MULTILINE))
    text = re.sub(r"^\[\w+\]: (?!https:).*\n", "", text, flags=re.MULTILINE)
    text = re.sub(
        r"\[([^\]`]+)\]\[(\w+)\]", lambda m: f"`{m[1]}`" if m[2] in inside else m[0], text
    )
    return text.replace("\npip install .\n", "\npip install gpt2np\n").rstrip() + "\n"

"""The page: the flow and the run's tables in a template, with a style and a script."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from string import Template

from gpt2np.anatomy import Ledger, ledger
from gpt2np.explorer import data, figures
from gpt2np.explorer.flow import Flow
from gpt2np.explorer.markup import Markup, as_json, element, join
from gpt2np.explorer.run import Run
from gpt2np.version import __version__

TIED = "The dashed line is one matrix, used twice: to look tokens up, and to score them at the end."


def page(run: Run, vectors: str | None = None, *, live: bool = False) -> str:
    """Write the whole page, with the vectors of "all" tokens, the "last", or as there is room; or
    with the model itself, to run in the page."""
    account = ledger(run.config, T=len(run.ids))
    kept = data.kept(run, vectors)
    facts = data.facts(run) | {"kept": kept._asdict()}
    live_form = live_heads = ""
    template, style, script = map(_file, ("page.html", "page.css", "page.js"))
    if live:
        facts["model"], arrays = data.live(run)
        script = _file("live.js") + script
        form, live_heads = _file("live.html").split("---\n")
        live_form = Template(form).substitute(text=join(run.text))
    else:
        arrays = data.arrays(run, kept)
    entries, packed = data.pack(arrays)
    return Template(template).substitute(
        # What the page is made of
        style=style,
        script=script,
        run=as_json(facts | {"arrays": entries}),
        arrays=packed,
        live_form=live_form,
        live_heads=live_heads,
        style_hash=_hash(style),
        script_hash=_hash(script),
        # What it says
        version=__version__,
        dtype=run.model.params.dtype,
        title=join(" ".join(run.text.split())[:60]),
        text=join(run.text),
        facts=_facts(run, account),
        sum=_sum(account),
        columns=figures.columns(run),
        tied=TIED if run.config.tie_word_embeddings else "",
        shape_btd=account.numbers("[B, T, D]").strip("[]"),
        T_tokens=f"{len(run.ids)} token{'' if len(run.ids) == 1 else 's'}",
        marked="" if live else " that is marked by a bar",
        H=run.config.n_head,
        K=run.config.head_width,
        D=f"{run.config.n_embd:,}",
        F=f"{run.config.n_inner:,}",
        V=f"{run.config.vocab_size:,}",
        fewer="" if live else _fewer(run, kept),
        # What it shows
        flow=Flow(account, run).draw(),
        tokens=figures.tokens(run),
        attention=figures.attention(run),
        attention_map=figures.attention_map(run),
        shades=run.shades + 1,
        opening_block=run.opening.block,
        opening_head=run.opening.head,
        last=element("span", run.tokens[run.opening.token], class_="token"),
        stream=figures.stream(run),
        mlp=figures.mlp(run),
        lens=figures.lens(run),
        next=figures.next_token(run),
    )


def _file(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """By what a Content-Security-Policy knows this script or style, and allows it alone."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _facts(run: Run, account: Ledger) -> Markup:
    config, source = run.config, run.model.source or "made by hand"
    facts = {
        "model": Path(source).name if Path(source).is_absolute() else source,
        "parameters": f"{account.n_params:,}",
        "blocks": config.n_layer,
        "heads": config.n_head,
        "width": f"{config.n_embd:,}",
        "vocabulary": f"{config.vocab_size:,}",
        "context": f"{config.n_ctx:,}",
        "tokens": len(run.ids),
    }
    return join(
        *(
            element(
                "div",
                element("dt", name),
                element("dd", value, id="n-tokens" if name == "tokens" else None),
            )
            for name, value in facts.items()
        )
    )


def _fewer(run: Run, kept: data.Kept) -> str:
    """Say what was left out of the page, or made coarser, for its size."""
    said = ""
    if len(run.tabled) < run.config.n_layer:
        said += f"The tables tell of {len(run.tabled)} of the {run.config.n_layer} blocks. "
    if not kept.all:
        digits = ", in 8 bits" if kept.type == "u1" else ""
        said += f"Vectors are kept of the last token alone{digits}; --vectors all keeps all. "
    return said


def _sum(account: Ledger) -> Markup:
    return join(
        f"All together: {account.formula} = {account.formula_value:,} parameters, and "
        f"{account.flops:,} floating-point operations for this run."
    )

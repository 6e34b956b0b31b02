"""Frame of an HTML page: one file without external resources."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources

from velocirl.monitor.markup import Markup, escaped, joined, tag

ICON = "data:,"  # prevents browsers from requesting one


def whole_page(title: str, parts: dict[str, tuple[str, Markup]], head: Markup) -> str:
    """Build the file: a head, then the parts by section name, each with its title in the navigation."""
    style, script = _resource("page.css"), _resource("page.js")
    shown = {name: part for name, part in parts.items() if part[1]}
    links = [tag("a", words, href=f"#{name}") for name, (words, _) in shown.items()]
    body = joined(head, tag("nav", *links, aria_label="sections"), tag("main", *(part for _, part in shown.values())))
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )
    return (
        "<!doctype html>\n"
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f'<link rel="icon" href="{ICON}">\n'
        f"<title>{escaped(title)}</title>\n<style>{style}</style>\n</head>\n"
        f"<body>\n{body}\n<script>{script}</script>\n</body>\n</html>\n"
    )


def _resource(name: str) -> str:
    return resources.files(__package__ or "").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """Return the hash by which a browser checks an inline style or script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"

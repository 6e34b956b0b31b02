"""`velocirl cache`: contents and size of the compile cache, and its removal."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from velocirl.bench.reports.terminal import new_table
from velocirl.cli.parsing import Parser
from velocirl.engine.compiler.caching.cache import Entry, cache_bound, clear_cache, entries
from velocirl.engine.disk.directories import cache_directory
from velocirl.monitor.console import make_console
from velocirl.monitor.words import say_bytes, say_seconds

KINDS = {
    ".unit": "functions for the CPU",
    ".ltoir": "functions for a GPU",
    ".cubin": "kernels of a GPU",
    ".loop": "loops in numba's own format",
}


def cache(arguments: Sequence[str]) -> None:
    """Show or clear the cache of compiled code."""
    parser = Parser(
        "cache",
        "Show how much compiled code is kept on disk, so that it need not be compiled again. The cache holds at most"
        " 2 GiB, or what VELOCIRL_CACHE_SIZE says, such as 500M or 4G; what was used longest ago is removed first."
        " It can be cleared at any time: what is needed again is compiled again.",
    )
    parser.add_argument("--clear", action="store_true", help="Remove everything from the cache")
    parser.add_argument("--json", action="store_true", help="Print JSON")
    given = parser.parse(arguments)
    console = make_console()
    if "clear" in given:
        gone = clear_cache()
        freed = sum(entry.size for entry in gone)
        if "json" in given:
            print(json.dumps({"removed": len(gone), "bytes": freed}))
        else:
            console.print(f"removed {len(gone)} files, {say_bytes(freed)}")
        return
    found = entries()
    size = sum(entry.size for entry in found)
    if "json" in given:
        kinds = {kind: sum(entry.size for entry in held) for kind, held in _by_kind(found).items()}
        described = {"directory": str(cache_directory()), "files": len(found), "bytes": size, "bound": cache_bound()}
        print(json.dumps({**described, "kinds": kinds}, indent=1))
        return
    console.print(f"{len(found)} files, {say_bytes(size)} of {say_bytes(cache_bound())}, in {cache_directory()}",
                  markup=False, soft_wrap=True)  # fmt: skip
    if not found:
        return
    table = new_table(console)
    for name in ("what", "files", "size", "last used"):
        table.add_column(name, justify="left" if name == "what" else "right")
    for kind, held in _by_kind(found).items():
        ago = time.time() - max(entry.used for entry in held)
        table.add_row(kind, str(len(held)), say_bytes(sum(entry.size for entry in held)), f"{say_seconds(ago)} ago")
    console.print(table)


def _by_kind(found: Sequence[Entry]) -> dict[str, list[Entry]]:
    """Group the files by kind, the largest group first."""
    kinds: dict[str, list[Entry]] = {}
    for entry in found:
        kinds.setdefault(KINDS.get(entry.path.suffix, "other"), []).append(entry)
    return dict(sorted(kinds.items(), key=lambda kind: -sum(entry.size for entry in kind[1])))

"""What every page says exists: files and headings that it links to, commands, options, names and settings."""

import ast
import dataclasses
import importlib
import re
import shlex
from functools import cache
from pathlib import Path

import pytest

import velocirl
from velocirl.algorithms import load_algorithms
from velocirl.cli.main import COMMANDS, main
from velocirl.cli.settings import read_request
from velocirl.training.persistence import ALGORITHMS

ROOT = Path(__file__).parents[2]
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = [*GUIDES, *(ROOT / name for name in ("BENCHMARKS.md", "CONTRIBUTING.md", "SECURITY.md"))]
GIVEN = {"data", "network"}  # to an agent, beside its settings


def named(pages):
    return pytest.mark.parametrize("page", pages, ids=lambda path: path.name)


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"(?m)^#+ (.+)$", text)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@named(PAGES)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not link.startswith("http")]
    for link in links:
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_guide_is_found_from_the_readme():
    readme = (ROOT / "README.md").read_text()
    assert all(f"docs/{page.name}" in readme for page in GUIDES[1:])


def commands(page):
    for line in "\n".join(blocks(page, "bash")).replace("\\\n", " ").splitlines():
        if found := re.search(r"(?:^|-m |\d )velocirl (\w+)(.*)", line.partition("#")[0]):
            yield found[1], shlex.split(found[2])


@cache
def options(command):
    """What `velocirl COMMAND --help` knows, with the options of what a command like `dataset` is followed by."""
    shown = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.print", lambda *words, **_: shown.append(" ".join(map(str, words))))
        patch.setattr("sys.stdout.write", shown.append)
        with pytest.raises(SystemExit):
            main([*command, "--help"])
    return set(re.findall(r"--[a-z][\w-]*", "".join(shown)))


@named(GUIDES)
def test_commands_and_options_are_there(page, tmp_path, monkeypatch):
    (tmp_path / "run.toml").touch()  # which a command reads
    monkeypatch.chdir(tmp_path)
    for command, words in commands(page):
        assert command in COMMANDS
        if command == "train":
            read_request(words)
            continue
        parts = (command, words[0]) if command in ("dataset", "profile") or words[:1] == ["history"] else (command,)
        said = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert said <= options(parts), (command, said - options(parts))


def nodes(page):
    """Everything in a page's blocks of Python."""
    return [node for block in blocks(page, "python") for node in ast.walk(ast.parse(block))]


@named(GUIDES)
def test_names_of_the_library_are_there(page):
    for node in nodes(page):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("velocirl"):
            module = importlib.import_module(node.module)
            assert all(hasattr(module, one.name) for one in node.names), ast.unparse(node)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "velocirl":
            assert hasattr(velocirl, node.attr), ast.unparse(node)


@named(GUIDES)
def test_settings_of_agents_are_there(page):
    load_algorithms()
    known = {kind.__name__: {field.name for field in dataclasses.fields(kind.Config)} for kind in ALGORITHMS.values()}
    for node in nodes(page):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in known:
            said = {one.arg for one in node.keywords}
            assert said <= known[node.func.attr] | GIVEN, ast.unparse(node)

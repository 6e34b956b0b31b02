"""Import of Python files by path, as if they were run as scripts."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

from velocirl.engine.disk.files import read_plain
from velocirl.engine.errors import DefinitionError


def import_file(path: Path, source: bytes | None = None) -> ModuleType:
    """Import a file, from `source` if given; errors in the file are raised as ValueError with file and line.

    Never uses cached bytecode, which may belong to other content.
    """
    source = read_plain(path) if source is None else source
    name = f"{path.stem}_file"  # never the name of another module
    loader = SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None:
        raise ValueError(f"{path} cannot be imported as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))  # modules in its directory can be imported, as from a script
    try:
        exec(loader.source_to_code(source, str(path)), module.__dict__)  # noqa: S102 - as an import does it
    except DefinitionError:
        raise
    except Exception as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = frames[-1].lineno if frames else getattr(error, "lineno", None)
        place = f"{path}:{line}" if line else str(path)
        raise ValueError(f"{place}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(path.parent))
    return module

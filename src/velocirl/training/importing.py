"""Python files that a person names, imported as if they were run."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from velocirl.engine.errors import DefinitionError


def import_file(path: Path) -> ModuleType:
    """Import a file; what is wrong in it is a ValueError with its place."""
    spec = importlib.util.spec_from_file_location(f"{path.stem}_file", path)  # never the name of another module
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} cannot be imported as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.parent))  # what lies beside it can be imported, as when it is run as a script
    try:
        spec.loader.exec_module(module)
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

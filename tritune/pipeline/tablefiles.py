"""pipeline.tablefiles: a FILE of the command line -> the Table in it, by what its name says."""

from __future__ import annotations

from pathlib import Path

from tritune import configlist, configtables
from tritune.axisvalues import near_file
from tritune.configtables import Table
from tritune.errors import TableError
from tritune.pipeline.asking import ask

VLLM, CONFIGS, AUTOTUNE = "vllm", "configs", "autotune-cache"
_WRITTEN = (
    "Triton's autotuner writes such files under TRITON_CACHE_AUTOTUNING=1, into TRITON_CACHE_DIR "
    "or ~/.triton/cache"
)


def read(file: str, form: str | None, axis: str) -> Table:
    """The table, in the format that is named or that the file's name says.

    Raises:
        TrituneError: there is none, or it is wrong.
    """
    form = form or _form(file)
    if form == CONFIGS:
        return ask(configlist.read, file, axis)
    text = _text(file, form)
    if form == AUTOTUNE:
        return configtables.parse_autotune(text, file)
    return configtables.parse_vllm(text, file, axis)


def _text(file: str, form: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        hint = "a table is JSON"
        raise TableError("not text in UTF-8", where=file, hint=hint) from None
    except IsADirectoryError:
        hint = f"name the files in it, as {Path(file) / _pattern(form)}"
        raise TableError("it is a folder", where=file, hint=hint) from None
    except FileNotFoundError:
        raise _missing(file, form) from None
    except OSError as error:
        what, hint = (error.strerror or str(error)).lower(), "give the path of a file to read"
        raise TableError(what, where=file, hint=hint) from None


def _missing(file: str, form: str) -> TableError:
    if any(mark in file for mark in "*?["):  # a shell passes on what nothing matches
        hint = _WRITTEN if form == AUTOTUNE else "a path is relative to the current folder"
        return TableError("no file matches the pattern", where=file, hint=hint)
    path = Path(file)
    if guess := near_file(path):
        hint = f"did you mean `{guess}`?"
    elif _is_module(file):
        hint = f"configs in Python are MODULE:NAME, as {file}:NAME"
    else:
        hint = "a path is relative to the current folder"
    return TableError("no such file", where=file, hint=hint)


def _pattern(form: str) -> str:
    return f"*{configtables.CACHED}" if form == AUTOTUNE else "*.json"


def _form(file: str) -> str:
    if file.endswith(configtables.CACHED):
        return AUTOTUNE
    is_python = file.endswith(".py") or (":" in file and not Path(file).exists())
    return CONFIGS if is_python else VLLM


def _is_module(file: str) -> bool:
    return all(part.isidentifier() for part in file.split(".")) and not file.endswith(".json")

"""Finding specs by name or alias, and loading them.

Folders are searched in this order: those of ``$PERFMODEL_PATH``, the current folder, the bundled ones.  A bundled name
is found in a generated index, so that only the files a question names are opened.
"""

from __future__ import annotations

import difflib
import filecmp
import functools
import json
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

from perfmodel.errors import UserError
from perfmodel.specs import files, kinds, naming, plugins, rules
from perfmodel.specs.naming import EngineName, read_engine, release_numbers
from perfmodel.specs.paths import quantities
from perfmodel.specs.prices import filled
from perfmodel.specs.sessions import Session
from perfmodel.specs.types import (
    ENGINES,
    Economics,
    Engine,
    Materials,
    Model,
    Prices,
    Provenance,
    Regions,
    Reliability,
    System,
    Traffic,
)
from perfmodel.writing import whole

#: Kind of spec: (folder, dataclass).
FOLDERS: dict[str, tuple[str, type[Any]]] = {
    "system": ("hardware_specs", System),
    "model": ("workloads/models", Model),
    "traffic": ("workloads/traffic", Traffic),
    "session": ("workloads/sessions", Session),
}
INDEX = "index.json"
CALIBRATION = "hardware_specs/calibration"
ENGINE_FOLDER = "hardware_specs/engines"
POWER_FOLDER = "hardware_specs/power"
PRICES_FOLDER = "hardware_specs/prices"
ECONOMICS, MATERIALS, RELIABILITY = "economics.yaml", "materials.yaml", "reliability.yaml"
REGIONS = "regions.yaml"
_SINGLE = (ECONOMICS, MATERIALS, RELIABILITY, REGIONS)
SOURCES = "hardware_specs/sources.yaml"
#: Files that a file may extend, one after the other.
_MOST_PARENTS = 20
#: Kind of the provenance of a whole spec that comes from a file of the user's own.
OWN = "own"
#: What parts of a system are called that have files of their own.
_LABELS = {"engine": "engine", "efficiency": "calibration", "power_shape": "power"}
#: How a line ends that says which.
IN_PLACE = ", in place of the bundled one"


@functools.cache
def bundled() -> Path:
    """Return the folder that holds the bundled specs: inside the wheel, or the checkout."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "bundled"
    return inside if inside.is_dir() else package.parent


def _user_roots() -> list[Path]:
    named = [Path(part).expanduser() for part in os.environ.get("PERFMODEL_PATH", "").split(os.pathsep) if part]
    return [root for root in [*named, Path.cwd()] if root.resolve() != bundled()]


def roots() -> list[Path]:
    """Return the folders that specs and recipes are looked for in, in order: the user's, ours, other packages'.

    Returns
    -------
    list of Path
    """
    return [*_user_roots(), bundled(), *plugins.folders()]


def _first(name: str) -> Path | None:
    """Return the first file of that name below the roots; other packages are looked at last."""
    for root in [*_user_roots(), bundled()]:
        if (root / name).is_file():
            return root / name
    return next((root / name for root in plugins.folders() if (root / name).is_file()), None)


def _spec_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.yaml") if path.name not in ("sources.yaml", *_SINGLE))


def _names(path: Path) -> list[str]:
    raw = files.read_yaml(path)
    if not isinstance(raw, dict):
        return [path.stem]
    aliases = raw.get("aliases")
    found = [raw.get("name", path.stem), *(aliases if isinstance(aliases, list) else []), raw.get("hf_id")]
    # They are listed and suggested, also where the file itself does not load for them.
    shown = ["".join(letter if letter.isprintable() else "?" for letter in str(name)) for name in found if name]
    return shown or [path.stem]


def _names_by_line(path: Path) -> list[str]:
    """Return the name that a file which is no YAML seems to give itself, so that it is missed where it is meant."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [found.strip(" \t'\"").casefold() for found in re.findall(r"^name:([^#\n]*)", text, re.MULTILINE)]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def make_index(kind: str) -> dict[str, str]:
    """Return the file of every bundled name and alias, case-folded.

    Parameters
    ----------
    kind : str
        ``system``, ``model``, ``traffic`` or ``session``.

    Returns
    -------
    dict of str to str
    """
    folder = bundled() / FOLDERS[kind][0]
    index: dict[str, str] = {}
    for path in _spec_files(folder):
        for name in _names(path):
            index.setdefault(name.casefold(), path.name)
    return dict(sorted(index.items()))


def _index(kind: str) -> dict[str, str]:
    return _read_index(bundled() / FOLDERS[kind][0])["names"]


def own_folder() -> Path:
    """Return the folder below which fitted files may be written: a checkout's, else the current one.

    Returns
    -------
    Path
        Never an installed package.
    """
    package = Path(__file__).resolve().parent.parent
    return Path.cwd() if bundled().is_relative_to(package) else bundled()


def find(kind: str, name: str) -> Path:
    """Return the file of a name, an alias or a path.

    Parameters
    ----------
    kind : str
        ``system``, ``model``, ``traffic`` or ``session``.
    name : str
        Name, alias or path.

    Returns
    -------
    Path

    Raises
    ------
    UserError
        Where nothing has that name; the message says what comes nearest.
    """
    folder = FOLDERS[kind][0]
    if name.endswith((".yaml", ".yml", ".json")) or (os.sep in name and os.path.isfile(name)):
        path = Path(name)
        if not os.path.isfile(name):
            raise UserError(f"{name}: no such file")
        return path
    wanted = name.casefold()
    known: list[str] = []
    unread: list[str] = []
    for root in _user_roots():
        for path in _spec_files(root / folder):
            try:
                names = [matching.casefold() for matching in _names(path)]
            except UserError as error:
                names = _names_by_line(path)
                unread.append(str(error))
            if wanted in names or wanted == path.stem.casefold():
                return path
            known += names
    index = _index(kind)
    if wanted in index:
        return bundled() / folder / index[wanted]
    for root in plugins.folders():
        for path in _spec_files(root / folder):
            names = _names(path)
            if wanted in map(str.casefold, (*names, path.stem)):
                return path
            known += [name.casefold() for name in names]
    names = list(dict.fromkeys([*known, *index]))
    if kind == "model":
        if wanted.endswith("gguf") and os.sep in name:
            raise UserError(f"{name}: a repository of GGUF files has many precisions; give the file, or its base model")
        short = {full_name.rpartition("/")[2]: file for full_name, file in index.items()}
        for base in naming.bases(name):
            if file := index.get(base) or (short.get(base) if "/" not in base else None):
                return bundled() / folder / file
        # A model of another family is no suggestion, however near its name.
        asked = naming.family(name)
        names = [full_name for full_name in names if _is_near(naming.family(full_name), asked)]
    # Names of one spec count once, the nearest of them.
    near = difflib.get_close_matches(wanted, names, n=12, cutoff=0.5)
    nearest: dict[str, str] = {}
    for matching in near:
        nearest.setdefault(index.get(matching, matching), matching)
    close = list(nearest.values())[:3]
    hint = f"did you mean {' or '.join(close)}?" if close else f"'perfmodel specs list {kind}s' shows all"
    if kind == "model" and not close:
        hint += ", and a folder with its config.json is read too"
    if unread:
        hint += f" A file that may hold it cannot be read: {unread[0]}"
    raise UserError(f"unknown {kind} '{name}': {hint}")


def _is_near(one: str, other: str) -> bool:
    return difflib.SequenceMatcher(None, one, other).ratio() >= 0.75


def _parent(path: Path, parent_name: str) -> Path:
    """Return the file that a file extends: beside it, or bundled."""
    systems = FOLDERS["system"][0]
    below = [path.parent.name, f"{systems}/{path.parent.name}", *(folder for folder, *_ in FOLDERS.values())]
    tried = [path.parent, *(bundled() / folder for folder in below)]
    for folder in tried:
        parent_path = folder / f"{parent_name}.yaml"
        # A file may extend the bundled one that it stands before.
        if os.path.isfile(parent_path) and parent_path != path:
            return parent_path
    if parent_name == path.stem:
        raise UserError(f"{path}: extends itself")
    raise UserError(f"{path}: extends: there is no spec '{parent_name}' beside it or among the bundled ones")


def _raw(path: Path, seen: tuple[Path, ...] = ()) -> tuple[dict[str, Any], dict[str, files.Origin]]:
    """Return a file's content with ``extends`` resolved, and what wrote each path."""
    content = files.read_yaml(path)
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected a mapping of fields")
    if path in seen:
        raise UserError(f"{path}: extends itself")
    if len(seen) > _MOST_PARENTS:
        raise UserError(f"{path}: extends more than {_MOST_PARENTS} files, one after the other")
    files.check_text(content, path)
    own = dict(content)
    own.pop("description", None)
    # Files of these two folders are named by a key, so that the name alone does not say whose they are.
    keyed = path.parent.name in (Path(CALIBRATION).name, Path(POWER_FOLDER).name)
    said = str(path) if keyed and not path.is_relative_to(bundled()) else path.name
    by = files.Origin(said, str(own.pop("source", "")), str(own.pop("kind_of_numbers", "")))
    parent_name = own.pop("extends", None)
    written = dict.fromkeys(files.paths_written(own), by)
    if parent_name is None:
        return own, written
    if not isinstance(parent_name, str) or "/" in parent_name or "\\" in parent_name:
        raise UserError(f"{path}: extends: expected the name of a spec in the same folder or a bundled one")
    parent, origin = _raw(_parent(path, parent_name), (*seen, path))
    parent.pop("aliases", None)
    return files.merge(parent, own), {**origin, **written}


def _chain(path: Path) -> list[Path]:
    """Return a file and those that it extends, one after the other."""
    raw = files.read_yaml(path)
    parent = raw.get("extends")
    return [path, *_chain(_parent(path, parent))] if parent else [path]


def _checksum(path: Path) -> int:
    return zlib.crc32(path.read_bytes())


def _is_checked(path: Path) -> bool:
    """Whether a bundled file is, byte for byte, the one that was checked when its index was made."""
    if not path.is_relative_to(bundled()):
        return False
    return bool(_read_index(path.parent)["checked"].get(path.name) == _checksum(path))


@functools.cache
def _read_index(folder: Path) -> dict[str, dict[str, Any]]:
    path = folder / INDEX
    if not path.is_file():
        return {"names": {}, "checked": {}}
    return dict(json.loads(path.read_text(encoding="utf-8")))


def problems(path: Path, kind: type[Any], sources: bool = True) -> list[str]:
    """Return everything that is wrong with a spec file, one line each.

    Parameters
    ----------
    path : Path
    kind : type
        The dataclass that the file fills.
    sources : bool
        Whether the sources that it names must be known.

    Returns
    -------
    list of str
        Empty where nothing is wrong.
    """
    try:
        raw, origin = _raw(path)
    except UserError as error:
        return [str(error)]
    from perfmodel.specs import schema

    own = raw.pop("efficiency", None) if kind is System else None
    faults = schema.check(raw, kind, path)
    if faults:
        return faults
    made, provenance = files.build(kind, raw, origin)
    faults = [f"{files.place(path, where)}: {message}" for where, message in rules.broken(made)]
    faults += files.unsourced(kind, raw, provenance, path)
    if own is not None and not faults:
        faults = _wrong_efficiencies(path, cast(System, made), own)
        if not faults:
            _, more, _ = load_efficiency(made.kind, made.chip, made.default_engine, _Own(path, own, origin))
            provenance |= {where: entry for where, entry in more.items() if where in origin}
            faults = files.unsourced(kind, raw, provenance, path)
    if not faults and sources:
        known = load_sources()
        faults = [
            f"{files.place(path, where)}: source '{entry.source}' is not in {SOURCES}; add it there"
            for where, entry in provenance.items()
            if entry.source and not entry.source.startswith("http") and entry.source not in known
        ]
    return faults


@dataclass(frozen=True)
class _Own:
    """The efficiencies that a system's file gives itself, and what wrote them."""

    path: Path
    content: dict[str, Any]
    origin: dict[str, files.Origin]


def _own_efficiencies(path: Path) -> _Own | None:
    raw, origin = _raw(path)
    return _Own(path, raw["efficiency"], origin) if raw.get("efficiency") else None


def _wrong_efficiencies(path: Path, system: System, own: Any) -> list[str]:
    """Return what is wrong with the efficiencies of a system's file, which stand before those of its chip."""
    from perfmodel.specs import schema

    if not isinstance(own, dict):
        return [f"{files.place(path, 'efficiency')}: expected a mapping of fields"]
    base, _ = _calibration(system.kind, system.chip, system.default_engine, system.kin)
    merged = files.merge(_raw(base)[0] if base is not None else {}, own)
    return schema.check(merged, kinds.kind_of(system.kind).efficiency, path, ("efficiency",))


def _load(path: Path, kind: type[Any], prefix: str = "") -> tuple[Any, dict[str, Provenance]]:
    raw, origin = _raw(path)
    chain = _chain(path)
    if kind is System:
        raw.pop("efficiency", None)
    if not all(_is_checked(part) for part in chain):
        wrong = problems(path, kind)
        if wrong:
            more = f" (and {len(wrong) - 1} more: perfmodel specs check {path})" if len(wrong) > 1 else ""
            raise UserError(wrong[0] + more)
    if prefix:
        origin = {f"{prefix}.{where}": file for where, file in origin.items()}
    made, provenance = files.build(kind, raw, origin, prefix)
    own = [line for part in chain if (line := _in_place(part, prefix or kind.__name__.lower()))]
    if own:
        # Of the spec as a whole, not of one of its numbers.
        provenance[prefix] = Provenance("", OWN, file=path.name, note="\n".join(own))
    return made, provenance


def _is_copy(path: Path) -> bool:
    """Whether a file is the bundled one byte by byte, as in a clone of the project from which another was installed."""
    twins = [bundled() / path.relative_to(root) for root in _user_roots() if path.is_relative_to(root)]
    return any(twin.is_file() and filecmp.cmp(path, twin, shallow=False) for twin in twins)


def _in_place(path: Path, what: str) -> str:
    """Return that a file of the user's own stands in place of a bundled one, where it does."""
    if path.is_relative_to(bundled()) or _is_copy(path):
        return ""
    shown = path.absolute()
    shown = shown.relative_to(Path.cwd()) if shown.is_relative_to(Path.cwd()) else shown
    said = f"{''.join(part if part.isprintable() else '?' for part in str(shown))}{IN_PLACE}"
    if what not in FOLDERS:
        # An engine's release or a chip of one's own has the next release or the default in place of it.
        own = any(path.is_relative_to(root) for root in _user_roots())
        label = _LABELS.get(what)
        return f"{f'{label} {path.stem}' if label else what}: {said}" if own else ""
    taken = {name.casefold() for name in (*_names(path), path.stem)} & _index(what).keys()
    if not taken:
        return ""
    theirs = _names(bundled() / FOLDERS[what][0] / _index(what)[min(taken)])[0]
    return f"{what} {theirs}: {said}"


def in_place(*specs: Any) -> list[str]:
    """Return what files of the user's own stand in place of bundled ones, one line each.

    Parameters
    ----------
    *specs : Any
        Loaded specs; None has none.

    Returns
    -------
    list of str
    """
    found = [origin.note for spec in specs if spec for origin in spec.provenance.values() if origin.kind == OWN]
    return list(dict.fromkeys(line for note in found for line in note.splitlines()))


def load_sources() -> dict[str, dict[str, Any]]:
    """Return the bundled sources by id, and those of the user's folders."""
    paths = [root / SOURCES for root in reversed(roots()) if (root / SOURCES).is_file()]
    return _sources(tuple((path, path.stat().st_mtime_ns) for path in paths))


@functools.lru_cache(maxsize=8)
def _sources(paths: tuple[tuple[Path, int], ...]) -> dict[str, dict[str, Any]]:
    merged: dict[str, dict[str, Any]] = {}
    for path, _ in paths:
        merged.update(files.read_yaml(path) or {})
    return merged


def is_config(name: str) -> bool:
    """Whether a name is a path of what checkpoints come in: a ``.json`` or ``.gguf`` file, or a folder.

    Parameters
    ----------
    name : str

    Returns
    -------
    bool
    """
    if name.endswith((".json", ".gguf")):
        return True
    # A folder that happens to have the name of a bundled spec does not hide it.
    return os.path.isdir(name) and not any(name.casefold() in _index(kind) for kind in FOLDERS)


def load_model(name: str) -> Model:
    """Load an architecture by name, alias, Hugging Face id or path: a checkpoint, or the folder that holds one.

    Parameters
    ----------
    name : str

    Returns
    -------
    Model
    """
    if name.casefold() not in _index("model") and is_config(name):
        from perfmodel.specs import checkpoints

        model = checkpoints.read(Path(name), load_model).model
        files.check_text({"name": model.name, "hf_id": model.hf_id}, Path(name))
        return model
    model, provenance = _load(find("model", name), Model)
    found = replace(cast(Model, model), provenance=provenance)
    return replace(found, kv_cache="fp8") if naming.declares_fp8_cache(name) else found


def model_notes(model: Model) -> list[str]:
    """Return what the reader of a Hugging Face configuration left out or took on trust.

    Parameters
    ----------
    model : Model

    Returns
    -------
    list of str
    """
    # What was worked out from several fields explains itself; what concerns the whole file stands on every number.
    notes = [entry.note for entry in model.provenance.values() if entry.kind == "datasheet" and entry.note]
    return [f"{model.name}: {note}" for note in dict.fromkeys(part for note in notes for part in note.split("; "))]


def load_traffic(name: str) -> Traffic:
    """Load a traffic by name or path.

    Parameters
    ----------
    name : str

    Returns
    -------
    Traffic
    """
    traffic, provenance = _load(find("traffic", name), Traffic)
    return replace(cast(Traffic, traffic), provenance=provenance)


def load_session(name: str) -> Session:
    """Load a kind of session by name or path.

    Parameters
    ----------
    name : str

    Returns
    -------
    Session
    """
    session, provenance = _load(find("session", name), Session)
    return replace(cast(Session, session), provenance=provenance)


def load_bare_system(name: str) -> System:
    """Load a system without the efficiencies of any engine.

    Parameters
    ----------
    name : str
        Name, alias or path.

    Returns
    -------
    System
    """
    system, provenance = _load(find("system", name), System)
    if system.price.chips != system.price.chips:
        node = provenance["chips_per_node"]
        provenance["price.chips"] = replace(node, kind="derived", note="those of a node")
        chips = system.chips_per_node
        if system.price.of not in ("", system.name) and system.price.system != system.price.system:
            # The release has the price of another system's node.
            chips = _load(find("system", system.price.of), System)[0].chips_per_node
        system = replace(system, price=replace(system.price, chips=chips))
    found = replace(cast(System, system), provenance=provenance)
    economics = load_economics()
    return filled(found, load_prices(), economics.basis, economics.market)


def load_prices(release: str = "") -> Prices:
    """Load a dated release of prices.

    Parameters
    ----------
    release : str
        Its month, as 2026-11, or a file; the newest if none.

    Returns
    -------
    Prices

    Raises
    ------
    UserError
        Where there is none of that month.
    """
    path = Path(release)
    if not release or path.suffix != ".yaml":
        by_release = {at.stem: at for root in reversed(roots()) for at in _spec_files(root / PRICES_FOLDER)}
        if release and release not in by_release:
            raise UserError(
                f"--prices {release}: no such release; there are {', '.join(sorted(by_release))}, or name a file"
            )
        path = by_release[release or max(by_release)]
    elif not path.is_file():
        raise UserError(f"--prices {release}: no such file")
    stamp = path.stat()
    return _prices(path, (stamp.st_mtime_ns, stamp.st_size))


@functools.lru_cache(maxsize=4)
def _prices(path: Path, stamp: tuple[int, int]) -> Prices:
    """Return the release that a file holds; ``stamp`` tells its versions apart."""
    found, provenance = _load(path, Prices)
    return replace(cast(Prices, found), provenance=provenance)


def load_system(name: str, engine: str | None = None) -> tuple[System, str, list[str]]:
    """Load a system with the efficiencies of an engine.

    Parameters
    ----------
    name : str
        Name, alias or path.
    engine : str
        ``NAME[-MAJOR[.MINOR[.PATCH]]]``; its default engine if none.

    Returns
    -------
    system : System
    engine : str
        The engine asked for, or the system's own default.
    warnings : list of str
        What the user must know of the efficiencies.
    """
    system = load_bare_system(name)
    chosen = engine or system.default_engine
    own = _own_efficiencies(find("system", name))
    if _calibration(system.kind, system.chip, chosen)[1]:
        system = replace(system, kin="")
    efficiency, origin, warnings = load_efficiency(system.kind, system.chip, chosen, own, system.kin)
    efficiency = efficiency.at_rates(system.rates)
    read = {"efficiency", *(f"efficiency.{path}" for path, _, _ in quantities(efficiency))}
    origin = {path: entry for path, entry in origin.items() if path in read}
    system = replace(system, efficiency=efficiency, provenance={**system.provenance, **origin})
    return with_power(with_engine(system, chosen)), chosen, warnings


def releases(engine: str) -> dict[str, Path]:
    """Return the files of the releases of an engine whose memory is known, the earliest first.

    Parameters
    ----------
    engine : str
        Its bare name.

    Returns
    -------
    dict of str to Path
        A file without a release in its name, as a user's own may be, stands under an empty one.
    """
    form = re.compile(rf"{re.escape(engine)}(?:-(\d+(?:\.\d+)*))?")
    dated: dict[str, Path] = {}
    for root in [*_user_roots(), bundled(), *(() if engine in ENGINES else plugins.folders())]:
        for path in (root / ENGINE_FOLDER).glob(f"{engine}*.yaml"):
            if (read := form.fullmatch(path.stem)) is not None:
                dated.setdefault(read[1] or "", path)
    return {release: dated[release] for release in sorted(dated, key=release_numbers)}


def nearest_release(engine: EngineName) -> str | None:
    """Return the release whose numbers stand for one that was named: the nearest earlier, else the earliest known.

    Parameters
    ----------
    engine : EngineName
        Without a release it is a file's that names none, else the newest.

    Returns
    -------
    str or None
        None where nothing is known of the engine's memory.
    """
    known = list(releases(engine.name))
    if not known:
        return None
    if not engine.release:
        return "" if "" in known else known[-1]
    wanted = release_numbers(engine.release)
    earlier = [release for release in known if release_numbers(release)[: len(wanted)] <= wanted]
    return earlier[-1] if earlier else known[0]


def release_note(system: System, engine: EngineName) -> str:
    """Return what is assumed of an engine's release, empty where it is the one that was named.

    Parameters
    ----------
    system : System
        With the engine's budget.
    engine : EngineName
        As it was asked for.

    Returns
    -------
    str
    """
    release = system.engine.release if system.engine is not None else ""
    if not release or release == engine.release:
        return ""
    if not engine.release:
        return f"{engine.name} {release}, the newest release whose memory is known"
    wanted = release_numbers(engine.release)
    which = "nearest earlier" if release_numbers(release)[: len(wanted)] <= wanted else "earliest"
    return f"memory of {engine.name} {engine.release} by the numbers of release {release}, the {which} that is known"


def with_engine(system: System, engine: str) -> System:
    """Return a system with the memory budget of an engine on its card; ``native`` has none.

    Parameters
    ----------
    system : System
    engine : str
        ``NAME[-MAJOR[.MINOR[.PATCH]]]``.

    Returns
    -------
    System
    """
    if kinds.kind_of(system.kind).engines == ("native",):
        return system
    named = read_engine(engine)
    release = nearest_release(named)
    if release is None:
        return system
    budget, origin = _load(releases(named.name)[release], Engine, "engine")
    budget, origin = _settled(system, budget, origin)
    return replace(system, engine=budget, provenance={**system.provenance, **origin})


def _settled(system: System, engine: Engine, origin: dict[str, Provenance]) -> tuple[Engine, dict[str, Provenance]]:
    """Return an engine with what it takes on the card of a system, each number with where it comes from."""
    tier = system.memory.hbm
    assert tier is not None
    shown = float(tier.capacity) * float(tier.visible if tier.visible == tier.visible else 1.0)
    kept = {path: entry for path, entry in origin.items() if not path.startswith("engine.on_cards.")}
    numbers: dict[str, Any] = {}
    for name, card in engine.on_cards.items():
        elsewhere = (card.chips and system.chip not in card.chips) or system.chip in card.except_chips
        if elsewhere or (card.links and system.link.topology not in card.links) or shown < float(card.memory):
            continue
        for entry in fields(card):
            value = getattr(card, entry.name)
            if hasattr(engine, entry.name) and value == value:
                numbers[entry.name] = value
                kept[f"engine.{entry.name}"] = origin[f"engine.on_cards.{name}.{entry.name}"]
    return replace(engine, on_cards={}, **numbers), kept


def with_power(system: System) -> System:
    """Return a system with the way in which the power of its kind follows the work.

    Parameters
    ----------
    system : System

    Returns
    -------
    System
    """
    path = _first(f"{POWER_FOLDER}/{system.kind}.yaml")
    if path is None:
        raise UserError(f"{system.name}: there is no {POWER_FOLDER}/{system.kind}.yaml for its kind")
    shape, origin = _load(path, kinds.kind_of(system.kind).power_shape, "power_shape")
    return replace(system, power_shape=shape, provenance={**system.provenance, **origin})


def load_reliability() -> Reliability:
    """Load how often chips fail: the user's ``hardware_specs/reliability.yaml``, else the bundled one.

    Returns
    -------
    Reliability
    """
    found, provenance = _load(_nearest(RELIABILITY), Reliability)
    return replace(cast(Reliability, found), provenance=provenance)


def load_economics(region: str = "") -> Economics:
    """Load what money, power and people cost: the user's ``hardware_specs/economics.yaml``, else the bundled one.

    Parameters
    ----------
    region : str
        What it has of electricity, space and carbon stands in place of theirs.

    Returns
    -------
    Economics

    Raises
    ------
    UserError
        Where no region is called that.
    """
    made, provenance = _load(_nearest(ECONOMICS), Economics)
    economics = replace(cast(Economics, made), provenance=provenance)
    if not region:
        return economics
    regions, origins = _load(_nearest(REGIONS), Regions)
    tables = {name: getattr(regions, name) for name in ("electricity", "colocation", "grid_carbon")}
    here = {name: table[region] for name, table in tables.items() if region in table}
    if not here:
        known = sorted({place for table in tables.values() for place in table})
        raise UserError(f"--region {region}: no such region; there are {', '.join(known)}")
    moved = {name: origins[f"{name}.{region}"] for name in here}
    said = f"region {region}: {', '.join(here)} of it, the rest as in economics.yaml"
    moved[""] = Provenance("", OWN, note="\n".join(filter(None, (getattr(provenance.get(""), "note", ""), said))))
    return replace(economics, **here, provenance={**provenance, **moved})


def load_materials() -> Materials:
    """Load what parts cost to make: the user's ``hardware_specs/materials.yaml``, else the bundled one.

    Returns
    -------
    Materials
    """
    materials, provenance = _load(_nearest(MATERIALS), Materials)
    return replace(cast(Materials, materials), provenance=provenance)


def _nearest(name: str) -> Path:
    """Return a file beside the systems: the user's own, else the bundled one."""
    roots = [*_user_roots(), bundled()]
    return next(path for root in roots if (path := root / FOLDERS["system"][0] / name).is_file())


_RELEASED = re.compile(r"-(\d+(?:\.\d+)*)$")


def _of_release(whose: str, engine: EngineName, shipped: bool) -> Path | None:
    """Return the first calibration of a chip and engine; of several releases the nearest earlier one, else any."""
    folders: list[Path] = [*(() if shipped else _user_roots()), bundled(), *plugins.folders()]
    for root in folders:
        plain = root / CALIBRATION / f"{whose}-{engine.name}.yaml"
        by_release: dict[tuple[int, ...], Path] = {
            release_numbers(read[1]): path
            for path in plain.parent.glob(f"{whose}-{engine.name}-*.yaml")
            if (read := _RELEASED.search(path.stem)) and path.stem == f"{whose}-{engine.name}-{read[1]}"
        }
        wanted = release_numbers(engine.release)
        earlier = [release for release in by_release if wanted and release[: len(wanted)] <= wanted]
        if earlier:
            return by_release[max(earlier)]
        if plain.is_file():
            return plain
        if by_release:
            return by_release[min(by_release) if wanted else max(by_release)]
    return None


def _calibration(kind: str, chip: str, engine: str, kin: str = "", shipped: bool = False) -> tuple[Path | None, str]:
    """Return the calibration file of a chip and engine, of its kin or the default of its kind, and whose it is."""
    named = read_engine(engine)
    for whose in (chip, kin):
        if whose and (path := _of_release(whose, named, shipped)) is not None:
            return path, whose
    default = f"{CALIBRATION}/default-{kind}.yaml"
    return (bundled() / default if shipped and (bundled() / default).is_file() else _first(default)), ""


def load_shipped(name: str, engine: str) -> tuple[Any, str, frozenset[str]]:
    """Load the efficiencies of a system before any calibration of the user's own.

    Parameters
    ----------
    name : str
        Of the system.
    engine : str
        ``NAME[-MAJOR[.MINOR[.PATCH]]]``.

    Returns
    -------
    efficiency : Efficiency
    file : str
        Name of the calibration that they come from.
    own : frozenset of str
        Paths of numbers that the system's file gives itself, which no calibration moves.
    """
    system, own = load_bare_system(name), _own_efficiencies(find("system", name))
    path, _ = _calibration(system.kind, system.chip, engine, system.kin, shipped=True)
    efficiency, _, _ = load_efficiency(system.kind, system.chip, engine, own, system.kin, shipped=True)
    held = frozenset(files.paths_written(own.content)) if own is not None else frozenset()
    return efficiency.at_rates(system.rates), path.stem if path is not None else "", held


def load_efficiency(
    kind: str, chip: str, engine: str, own: _Own | None = None, kin: str = "", shipped: bool = False
) -> tuple[Any, dict[str, Provenance], list[str]]:
    """Load the efficiencies of a chip and engine: the system's own, the calibrated ones, its kin's, the kind's default.

    Parameters
    ----------
    kind : str
        Of the machine, one of :mod:`perfmodel.specs.kinds`.
    chip : str
    engine : str
    own : optional
        What the system's file gives itself.
    kin : str
        Chip whose efficiencies stand for those of this one where it has none.
    shipped : bool
        Whether files of the user's own are passed over.

    Returns
    -------
    tuple of Efficiency, dict of str to Provenance, and list of str
        The last are what to mind.
    """
    path, calibrated = _calibration(kind, chip, engine, kin, shipped)
    shape = kinds.kind_of(kind).efficiency
    needed = {entry.name for entry in fields(shape) if entry.default is MISSING}
    whole = own is not None and needed <= own.content.keys()
    warnings = []
    if path is None and not whole:
        raise UserError(f"there is no {CALIBRATION}/default-{kind}.yaml for machines of kind {kind}")
    if not calibrated and not whole:
        where = f" where {own.path.name} gives none" if own is not None else ""
        warnings.append(
            f"no calibration for {chip} with {engine}: the default efficiencies of its kind apply{where}, with a wide "
            "band"
        )
    elif calibrated == kin and not whole:
        warnings.append(
            f"no calibration for {chip} with {engine}: the numbers of its kin {kin} apply, with a wider band"
        )
    if own is None:
        assert path is not None
        efficiency, provenance = _load(path, shape, "efficiency")
        return efficiency, provenance, warnings
    base: dict[str, Any] = {}
    origin: dict[str, files.Origin] = {}
    loaded: dict[str, Provenance] = {}
    if path is not None and not whole:
        loaded = _load(path, shape, "efficiency")[1]
        base, written = _raw(path)
        origin = {f"efficiency.{where}": by for where, by in written.items()}
    efficiency, provenance = files.build(shape, files.merge(base, own.content), {**origin, **own.origin}, "efficiency")
    provenance |= {where: entry for where, entry in loaded.items() if entry.kind == OWN}
    return efficiency, provenance, warnings


def engines(chip: str) -> list[str]:
    """Return the engines for which a chip is calibrated.

    Parameters
    ----------
    chip : str

    Returns
    -------
    list of str
    """
    prefix = f"{chip}-"
    return sorted(
        {
            _RELEASED.sub("", path.stem.removeprefix(prefix))
            for root in roots()
            for path in (root / CALIBRATION).glob(f"{prefix}*.yaml")
            if path.is_file()
        }
    )


def kind_named(word: str) -> str:
    """Return a kind of spec by its name, in the singular or the plural.

    Parameters
    ----------
    word : str
        ``systems``, ``model``, ...

    Returns
    -------
    str
        Key of ``FOLDERS``.
    """
    kind = word.removesuffix("s")
    if kind not in FOLDERS:
        raise UserError(f"unknown kind '{word}': expected one of {', '.join(f'{each}s' for each in FOLDERS)}")
    return kind


def entries(kind: str) -> Iterator[tuple[str, list[str], Path]]:
    """Give name, aliases and file of every spec, the user's first.

    Parameters
    ----------
    kind : str
        ``system``, ``model``, ``traffic`` or ``session``.

    Returns
    -------
    iterator of (str, list of str, Path)
    """
    folder = FOLDERS[kind][0]
    seen: set[str] = set()
    for root in roots():
        for path in _spec_files(root / folder):
            try:
                name, *aliases = _names(path)
            except UserError:  # `specs check` says what is wrong with it
                name, aliases = path.stem, []
            if name not in seen:
                seen.add(name)
                yield name, aliases, path


def stems(kind: str) -> list[str]:
    """Return the names of the files of every spec, which are theirs, without opening one.

    Parameters
    ----------
    kind : str
        As in :func:`entries`.

    Returns
    -------
    list of str
    """
    folder = FOLDERS[kind][0]
    return list(dict.fromkeys(path.stem for root in roots() for path in _spec_files(root / folder)))


def generated() -> dict[Path, str]:
    """Return the files that are made from the specs and the dataclasses, with their content.

    Returns
    -------
    dict of Path to str
    """
    from perfmodel.specs import schema

    made: dict[Path, str] = {}
    for kind, (folder, filled_by) in FOLDERS.items():
        root = bundled() / folder
        checked = {path.name: _checksum(path) for path in _spec_files(root) if not problems(path, filled_by)}
        if kind == "system":
            for name, filled in (
                (ECONOMICS, Economics),
                (MATERIALS, Materials),
                (RELIABILITY, Reliability),
                (REGIONS, Regions),
            ):
                if not problems(root / name, filled):
                    checked[name] = _checksum(root / name)
        made[root / INDEX] = json.dumps({"names": make_index(kind), "checked": checked}, indent=1) + "\n"
        form = schema.file_schema(filled_by).model_json_schema()
        if kind == "system":
            said = "What is reached on it, before the calibration of its chip: fields of a calibration file."
            form["properties"]["efficiency"] = {"type": "object", "description": said}
        made[root / f"{kind}.schema.json"] = json.dumps(form, indent=1) + "\n"
    root = bundled() / CALIBRATION
    checked = {p.name: _checksum(p) for p in _spec_files(root) if not problems(p, kind_of_file(p).efficiency)}
    made[root / INDEX] = json.dumps({"names": {}, "checked": checked}, indent=1) + "\n"
    root = bundled() / ENGINE_FOLDER
    checked = {path.name: _checksum(path) for path in _spec_files(root) if not problems(path, Engine)}
    made[root / INDEX] = json.dumps({"names": {}, "checked": checked}, indent=1) + "\n"
    root = bundled() / POWER_FOLDER
    checked = {p.name: _checksum(p) for p in _spec_files(root) if not problems(p, kind_of_file(p).power_shape)}
    made[root / INDEX] = json.dumps({"names": {}, "checked": checked}, indent=1) + "\n"
    root = bundled() / PRICES_FOLDER
    checked = {path.name: _checksum(path) for path in _spec_files(root) if not problems(path, Prices)}
    made[root / INDEX] = json.dumps({"names": {}, "checked": checked}, indent=1) + "\n"
    return made


def write_generated() -> None:
    """Write the generated files; run as ``python -m perfmodel.specs.catalog`` after a spec was changed."""
    for target, content in generated().items():
        with whole(target) as partial:
            partial.write_text(content, encoding="utf-8")
    _read_index.cache_clear()


def kind_of_file(path: Path) -> kinds.Kind:
    """Return the kind of machine that a calibration or power file is for: by its name, which is its key.

    Parameters
    ----------
    path : Path
        ``CHIP-ENGINE[-RELEASE].yaml`` or ``default-KIND.yaml`` of a calibration, ``KIND.yaml`` of a power.

    Returns
    -------
    Kind

    Raises
    ------
    UserError
        Where no system has such a chip, and no kind such a name.
    """
    named = path.stem.removeprefix("default-")
    if path.parent.name == Path(POWER_FOLDER).name or named != path.stem:
        return kinds.kind_of(named)
    chip = _RELEASED.sub("", path.stem).rpartition("-")[0]
    for _, _, system in entries("system"):
        raw, _ = _raw(system)
        if raw.get("chip") == chip:
            return kinds.kind_of(str(raw.get("kind")))
    raise UserError(f"{path}: a calibration is named CHIP-ENGINE.yaml, and no system has a chip '{chip}'")


if __name__ == "__main__":
    write_generated()

"""Reading configurations. Recipes, user files, run configurations and flags pass the same strict checks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from trellisnet.core.checks import one_of, positive, suggestion
from trellisnet.data.kinds import KINDS
from trellisnet.models.bodies import BODIES, body_options
from trellisnet.training.config import (
    About,
    Config,
    DataConfig,
    GivenModel,
    TrainingConfig,
    around_body,
    model_config,
)
from trellisnet.training.values import RENAMED, load_yaml, typed

SECTIONS = ("about", "data", "model", "training")
VERSION = 2  # of a run's config.yaml; version 1 is still read
Values = dict[str, dict[str, Any]]  # the given keys of each section


def read_mapping(path: Path) -> dict[Any, Any]:
    """The sections of a YAML file, unchecked; a ValueError if it is not a YAML mapping."""
    try:
        content = load_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        got = "an empty file" if content is None else repr(content)
        raise ValueError(f"{path} must be a mapping with the keys {', '.join(SECTIONS)}, got {got}")
    return content


def read_config(values: Mapping[Any, Any], where: str) -> Config:
    """Make a configuration from nested values.

    Args:
        values: the keys of each section, as in YAML or JSON.
        where: the origin of the values, for messages.

    Raises:
        ValueError: for an unknown key, a value of a wrong type, a missing key, and options that contradict each other.
    """
    return make_config(checked(values, where), where)


def read_run(path: Path) -> Config:
    """The configuration of a run, from its config.yaml."""
    return read_config(current_form(read_mapping(path), str(path)), str(path))


def checked(values: Mapping[Any, Any], where: str) -> Values:
    """Return the values; a ValueError for an unknown key or a value that has not its declared type."""
    sections: Values = {}
    for section, content in values.items():
        if section not in SECTIONS:
            raise ValueError(f"{where}: unknown section {section!r}{suggestion(str(section), SECTIONS)}")
        if not isinstance(content, Mapping | None):
            raise ValueError(f"{where}: {section} must be a mapping of options, got {content!r}")
        sections[section] = dict(content or {})
    kinds = section_kinds(sections, where)
    for section, content in sections.items():
        hints = get_type_hints(kinds[section])
        for key, value in content.items():
            if key not in hints:
                raise ValueError(f"{where}: unknown key {unknown_key(section, str(key), sections)}")
            content[key] = typed(f"{where}: {section}.{key}", hints[key], value)
    data = sections.get("data", {})
    if data.get("options"):
        data["options"] = checked_options(data.get("name", DataConfig.name), data["options"], where)
    return sections


def checked_options(name: str, options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The options of a dataset; a ValueError for an unknown one or a value that has not its declared type."""
    from trellisnet.data.registry import DATASETS, dataset_options  # noqa: PLC0415

    if name not in DATASETS:  # passed from Python
        return dict(options)
    known = dataset_options(name)
    for key in options:
        if key not in known:
            near = suggestion(str(key), known).replace(" '", " 'data.options.")
            has = f"its options are {', '.join(known)}" if known else "it has no options"
            raise ValueError(f"{where}: unknown key data.options.{key} of the dataset {name!r}{near}; {has}")
    return {key: typed(f"{where}: data.options.{key}", known[key].hint, value) for key, value in options.items()}


def section_kinds(values: Values, where: str) -> dict[str, type[Any]]:
    """The dataclass of every section. The one of the model depends on the body and on the kind of the data.

    Only a model that was passed from Python has the key `options`.
    """
    if "options" in values.get("model", {}):
        return {"about": About, "data": DataConfig, "model": GivenModel, "training": TrainingConfig}
    body = one_of(f"{where}: model.body", values.get("model", {}).get("body", "trellis"), BODIES)
    name = one_of(f"{where}: data.name", values.get("data", {}).get("name", DataConfig.name), KINDS)
    return {"about": About, "data": DataConfig, "model": model_config(body, KINDS[name]), "training": TrainingConfig}


def unknown_key(section: str, key: str, values: Values) -> str:
    """The part of a message that names an unknown key, the body and data in use, and the nearest known key."""
    known = [option.name for option in fields(section_kinds(values, "")[section])]
    near = suggestion(key, known).replace(" '", f" '{section}.")
    if section != "model":
        return f"{section}.{key}{near}"
    body, name = values["model"].get("body", "trellis"), values.get("data", {}).get("name", DataConfig.name)
    return f"{section}.{key} with body {body!r} on data {name!r}{near}"


def make_config(values: Values, where: str) -> Config:
    """Make a configuration from checked values: set defaults, and check the model's options."""
    kinds = section_kinds(values, where)
    given = {section: values.get(section, {}) for section in SECTIONS}
    if given["model"].get("parameters") is not None:
        if given["model"].get("hidden_size") is not None:
            raise ValueError(f"{where}: model.parameters chooses model.hidden_size: give one of the two")
        given["model"] = {**given["model"], "hidden_size": None}  # until the sizes of the data are known
    for option in fields(kinds["model"]):
        needed = option.default is MISSING and option.default_factory is MISSING
        if needed and option.name not in given["model"]:
            body = given["model"].get("body", "trellis")
            raise ValueError(f"{where}: model.{option.name} is needed with body {body!r}, and is not given")
    config = Config(**{section: kinds[section](**content) for section, content in given.items()})
    if not isinstance(config.model, GivenModel):
        _check_model(config, where)
    return config


def _check_model(config: Config, where: str) -> None:
    """Check the model's options by their declarations, before any data is loaded."""
    _, around = around_body(KINDS[config.data.name])
    chosen, declarations = config.model.chosen(), [around]
    if config.model.parameters is None:
        declarations.append(body_options(config.model.body))
    else:  # the body's options are checked when the data is known and the width is chosen
        positive(f"{where}: model.parameters", config.model.parameters)
    for declared in declarations:
        own = {option.name for option in fields(declared)}
        try:
            declared(**{name: value for name, value in chosen.items() if name in own})
        except (TypeError, ValueError) as error:
            raise ValueError(f"{where}: model.{error}") from None


def same_config(saved: Mapping[str, Any], config: Config) -> bool:
    """Whether a configuration saved as nested values, by this version or an earlier one, equals the given one."""
    forms = ({**values, "version": 1} for values in (saved, config.to_dict()))
    one, other = (read_config(current_form(form, "saved"), "saved") for form in forms)
    return one == other


def flat(values: Mapping[Any, Any], group: str = "") -> dict[str, Any]:
    """Nested values by dotted names such as training.epochs, converted as by writing and reading a file."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{group}{name}.")
        else:
            found[f"{group}{name}"] = json.loads(json.dumps(value, default=str))
    return found


def check_unchanged(path: Path, recorded: Mapping[str, Any]) -> None:
    """Raise a ValueError that names the key, unless a run's config.yaml has the values that the run recorded."""
    now, before = flat(current_form(read_mapping(path), str(path))), flat(recorded)
    for key in dict.fromkeys((*before, *now)):
        if key not in now:
            raise ValueError(f"{path} has changed: {key} is missing, and the run was started with {before[key]!r}")
        if key not in before:
            raise ValueError(f"{path} has changed: the run was started without {key}, got {now[key]!r}")
        if now[key] != before[key]:
            raise ValueError(f"{path} has changed: the run was started with {key} = {before[key]!r}, got {now[key]!r}")


def current_form(content: dict[Any, Any], where: str) -> dict[Any, Any]:
    """Convert a run's configuration to the current version, without the key `version`.

    In version 1 every model had the options of all models, null if they did not apply, and `cosine` had the alias
    `one-cycle`.
    """
    content = dict(content)
    version = content.pop("version", None)
    if version not in (1, VERSION):
        cut = ": it may be cut" if version is None else ""
        raise ValueError(f"{where} is of version {version!r}, this trellisnet reads versions 1 to {VERSION}{cut}")
    for section in SECTIONS:
        if not isinstance(content.get(section), dict):
            raise ValueError(f"{where} must have the section {section!r}, got {content.get(section)!r}: it may be cut")
    if version == 1:
        content["model"] = _set_options(content["model"])
        if content["training"].get("schedule") == "one-cycle":
            content["training"] = {**content["training"], "schedule": RENAMED["one-cycle"]}
    return content


def _set_options(model: dict[Any, Any]) -> dict[Any, Any]:
    """The options of a version 1 model that are not null; unknown keys are kept, so that they are refused later."""
    if isinstance(body := model.get("body"), dict):  # as in some runs of baselines
        model = {**model, "body": body.get("name")}
    known = {option.name for body in BODIES for kind in KINDS.values() for option in fields(model_config(body, kind))}
    return {name: value for name, value in model.items() if value is not None or name not in known}

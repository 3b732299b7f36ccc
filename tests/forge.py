"""Model files as an attacker would write them: any contents, and all sums right."""

import hashlib
import json
import zipfile

import numpy as np

from reconform.models import archive


def members_of(path):
    """The members of a model file, or of an object in it, by name."""
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def forge(path, members, manifest=None, *, compression=zipfile.ZIP_DEFLATED, sums=True, more=()):
    """Write a file with any contents whose sums are right."""
    manifest = dict(manifest or json.loads(members[archive.MANIFEST]))
    if sums:
        manifest["members"] = {
            name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in members.items()
            if name != archive.MANIFEST
        }
    text = json.dumps(manifest).encode()
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in {**members, archive.MANIFEST: text}.items():
            file.writestr(name, data)
        for info, data in more:
            file.writestr(info, data)
        file.comment = (archive.SEAL + hashlib.sha256(text).hexdigest()).encode()
    return path


def as_npy(array):
    """An array as a member."""
    return b"".join(map(bytes, archive.npy_pieces(array)))


def put(members, name, change):
    """Change an array of a forged file."""
    array = archive.read_npy(np.frombuffer(members[name], dtype=np.uint8)).copy()
    changed = change(array)
    members[name] = as_npy(array if changed is None else changed)


# Changes of what model.json says and of the members, to be made before a file is sealed again.


def says(*path):
    """Let model.json say the last of these where the others lead."""

    def edit(model, members):
        *keys, last, value = path
        for key in keys:
            model = model[key]
        model[last] = value

    return edit


def array(name, change):
    """Change a member that is an array."""
    return lambda model, members: put(members, f"{name}.npy", change)


def state(value):
    """Let the random state be this."""
    return says("parameters", {"dict": [["random_state", value]]})

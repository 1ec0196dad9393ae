"""An OCI image, made without a daemon: the program on an empty root, for every machine that `make dist` made it for.

The result is a layout in a tar archive, which `podman load`, `skopeo copy oci-archive:…` and `docker load` (25 or newer) read. Its one
entry is an index, from which each of them takes the image of its own machine. fathom-sql, if it was built, is a layer of its own.
"""

import gzip
import io
import json
import pathlib
import tarfile
import time

from release import LICENCE, SUMMARY, Program, Release, sha256

TYPE = "application/vnd.oci.image.{}+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class Layout:
    """Blobs by their checksum."""

    def __init__(self):
        self.blobs = {}

    def add(self, media_type: str, data: bytes, **more) -> dict:
        """Adds a blob; returns its descriptor."""
        digest = sha256(data)
        self.blobs[digest] = data
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data), **more}

    def add_json(self, kind: str, value: dict, **more) -> dict:
        return self.add(TYPE.format(kind), json.dumps(value, sort_keys=True).encode(), **more)


def write(made: Release, output: pathlib.Path) -> None:
    """Writes the image of all machines."""
    layout = Layout()
    notes = {
        "org.opencontainers.image.created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(made.date)),
        "org.opencontainers.image.description": SUMMARY,
        "org.opencontainers.image.licenses": LICENCE,
        "org.opencontainers.image.source": made.repository,
        "org.opencontainers.image.title": "fathom",
        "org.opencontainers.image.version": made.version,
    }
    images = [image(layout, program, notes) for program in made.programs]
    index = {"schemaVersion": 2, "mediaType": TYPE.format("index.v1"), "manifests": images, "annotations": notes}
    # The names that podman and Docker give it.
    named = {
        "org.opencontainers.image.ref.name": f"fathom:{made.version}",
        "io.containerd.image.name": f"localhost/fathom:{made.version}",
    }
    entry = layout.add_json("index.v1", index, annotations=named)
    top = {"schemaVersion": 2, "mediaType": TYPE.format("index.v1"), "manifests": [entry]}
    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(top, sort_keys=True).encode()}
    files |= {f"blobs/sha256/{digest}": data for digest, data in sorted(layout.blobs.items())}
    directories = ["blobs", "blobs/sha256"]
    (output / f"fathom-{made.version}-oci.tar").write_bytes(tar(directories, {n: (0o644, d) for n, d in files.items()}))


def image(layout: Layout, program: Program, notes: dict) -> dict:
    """Adds the image of one machine; returns its descriptor."""
    documents = {f"usr/share/doc/fathom/{name}": (0o644, program.files[name]) for name in program.licences()}
    directories = ["tmp", "usr", "usr/bin", "usr/share", "usr/share/doc", "usr/share/doc/fathom", "work"]
    layers = [tar(directories, {"usr/bin/fathom": (0o755, program.files["fathom"]), **documents})]
    if "fathom-sql" in program.files:
        layers.append(tar(["usr", "usr/bin"], {"usr/bin/fathom-sql": (0o755, program.files["fathom-sql"])}))
    machine = {"architecture": ARCHITECTURES[program.architecture], "os": "linux"}
    config = {
        **machine,
        "created": notes["org.opencontainers.image.created"],
        "config": {
            "Entrypoint": ["/usr/bin/fathom"],
            "Cmd": ["--help"],
            "Env": ["PATH=/usr/bin"],
            "WorkingDir": "/work",
            "Labels": notes,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(layer)}" for layer in layers]},
        "history": [{"created": notes["org.opencontainers.image.created"], "created_by": "packaging/make"} for _ in layers],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": TYPE.format("manifest.v1"),
        "config": layout.add_json("config.v1", config),
        "layers": [layout.add(LAYER_TYPE, gzip.compress(layer, 6, mtime=0)) for layer in layers],
        "annotations": notes,
    }
    return layout.add_json("manifest.v1", manifest, platform=machine)


def tar(directories: list, files: dict) -> bytes:
    """An archive of root's directories and files, without dates. /tmp is for all."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in directories:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(entry)
        for name, (mode, data) in files.items():
            entry = tarfile.TarInfo(name)
            entry.mode, entry.size = mode, len(data)
            archive.addfile(entry, io.BytesIO(data))
    return made.getvalue()

"""Whether two runs hold the same: all tables, sorted, byte for byte, except for how long things took."""

from __future__ import annotations

import pyarrow as pa

from jobs.run_folder import RunFolder

TIMING = {"simulation_seconds", "compile_seconds"}
KEYS = {
    "variants": ["family", "variant", "target"],
    "estimates": ["family", "variant", "target", "tier"],
    "instructions": ["family", "variant", "target", "tier", "pc"],
    "timeline": ["family", "variant", "target", "tier", "sm", "cta", "warp", "cycle"],
    "recordings": ["family", "variant", "target", "tier"],
}


def contents(folder: RunFolder) -> dict[str, bytes]:
    """Each table as the bytes of an Arrow stream."""
    found = {}
    for name, keys in KEYS.items():
        table = folder.read(name)
        table = table.select([column for column in table.column_names if column not in TIMING])
        # dictionaries depend on the order in which rows came
        plain = pa.schema(
            [(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in table.schema]
        )
        table = table.cast(plain).sort_by([(key, "ascending") for key in keys]).combine_chunks()
        rows = list(zip(*(table.column(key).to_pylist() for key in keys), strict=True))
        assert len(rows) == len(set(rows)), f"{name}: a row is there twice"
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        found[name] = sink.getvalue().to_pybytes()
    return found

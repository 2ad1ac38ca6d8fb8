"""`farm export`: a run for other tools."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from farm.commands.names import FamilyOption, StoreOption, TargetOption, family_of, open_run, target_of
from interpreter.errors import FarmError

FORMATS = ("t4", "triton")


def export(
    output_format: Annotated[str, typer.Argument(help="t4 (Kernel Tuner's results) or triton (*.autotune.json).")],
    run: Annotated[str, typer.Argument(help="Name of the run, or the beginning of it.", metavar="RUN")],
    target: TargetOption = None,
    family: FamilyOption = None,
    measured: Annotated[bool, typer.Option("--measured", help="Measured times instead of estimates.")] = False,
    key: Annotated[
        list[str] | None, typer.Option(help="triton: value of the tuning key, in order; repeat (default: the problem).")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write (default: stdout).")] = None,
    store: StoreOption = None,
) -> None:
    """Write a run's times of one GPU in another tool's format. Simulated times say so in the file."""
    from farm.interchange.kernel_tuner import write_t4
    from farm.interchange.triton import write_autotune
    from farm.output import writing_to

    if output_format not in FORMATS:
        raise FarmError(f"format {output_format}: one of {', '.join(FORMATS)}")
    database = open_run(run, store)
    chosen = family_of(database, family)
    known = database.folder.manifest.families[chosen].targets
    gpu = target_of(database, target) or (known[0] if len(known) == 1 else None)
    if gpu is None:
        raise FarmError(f"times of which GPU? Say so with --target ({', '.join(known)})")
    rows = _rows(database, chosen, gpu, measured)
    if output_format == "t4":
        text = write_t4(rows, gpu, chosen, measured)
    else:
        text = write_autotune(rows, _key(database, chosen, key), measured)
    if output is None:
        sys.stdout.write(text)
    else:
        with writing_to(f"-o {output}"):
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(text, encoding="utf-8")
        print(f"{len(rows)} variants of {chosen} on {gpu}: {output}", file=sys.stderr)


def _rows(database: Any, family: str, target: str, measured: bool) -> list[dict[str, Any]]:
    rows = database.rows(
        """
        SELECT v.variant, v.parameters, v.block_dim, v.registers, v.spill_store_bytes, v.spill_load_bytes, v.cubin_sha,
               v.compile_seconds, r.status, r.failure, r.time_us, r.bound, r.occupancy, r.simulation_seconds,
               r.measured_us
        FROM best_ranking r JOIN variants v USING (family, variant, target)
        WHERE family = ? AND target = ? ORDER BY v.variant
        """,
        [family, target],
    )
    if not measured:
        return list(rows)
    found = [{**row, "time_us": row["measured_us"], "status": "ok"} for row in rows if row["measured_us"] is not None]
    if not found:
        raise FarmError(f"run {database.folder.manifest.run}: no measured times of {family} on {target} (farm import)")
    return found


def _key(database: Any, family: str, given: list[str] | None) -> list[Any]:
    """The tuning key: what is given, numbers as numbers; else the problem's sizes."""
    if given:
        return [int(text) if text.lstrip("-").isdigit() else text for text in given]
    return list(database.folder.manifest.families[family].sweep.get("problem", {}).values())

"""What `farm submit --timeline` asks for, in the words of the jobs, and what came of it in the user's."""

from __future__ import annotations

from dataclasses import replace

from farm.submit_options import Options, SubmitError
from jobs.plan import Plan
from jobs.run_folder import RunFolder
from jobs.timeline import BYTES_A_ROW
from jobs.work import Recording
from timing.target import load_target


def with_timelines(plan: Plan, options: Options) -> Plan:
    """The plan with the wish for timelines, if there is one. Raises SubmitError for one that cannot be had."""
    if not options.timeline:
        return plan
    sweep = plan.sweep
    goes_on = options.tier is None and sweep.funnel.cycle not in (0, "0%")
    tier = options.tier or ("cycle" if goes_on else "sampled")
    if tier == "static":
        raise SubmitError("--timeline: the static tier has none; --tier sampled or cycle")
    if options.timeline_sms:
        if tier != "cycle":
            raise SubmitError(
                f"--timeline-sms goes with --tier cycle: the sampled tier, the last of {sweep.name}, times one SM"
            )
        largest = max(load_target(spec).sm_count for spec in plan.targets.values())
        beyond = [sm for sm in options.timeline_sms if sm >= largest]
        if beyond:
            raise SubmitError(f"--timeline-sms {beyond[0]}: the targets of {sweep.name} have SMs 0 to {largest - 1}")
    chosen = set(plan.numbers) if options.timeline_variants else set()
    for number in options.timeline_variants:
        if not 0 <= number < plan.total:
            raise SubmitError(f"--timeline-variants {number}: {sweep.name} has variants 0 to {plan.total - 1}")
        if number not in chosen:
            raise SubmitError(f"--timeline-variants {number}: is not among the variants that --limit leaves")
    record = Recording(tier, options.timeline, options.timeline_sms)
    settings = replace(plan.settings, record=record, record_variants=frozenset(options.timeline_variants))
    return replace(plan, settings=settings)


def announcement(plan: Plan) -> str | None:
    """How much the timelines of a plan may come to; None when it asks for none."""
    record = plan.settings.record
    if record is None:
        return None
    variants = len(plan.settings.record_variants or plan.numbers)
    count, each = variants * len(plan.targets), record.records * BYTES_A_ROW
    return (
        f"{plan.sweep.name}: timelines of at most {count} estimates of the {record.tier} tier, each of at most "
        f"{record.records:,} records, about {_size(each)}; all of them at most {_size(count * each)}"
    )


def summary(plan: Plan, folder: RunFolder) -> str | None:
    """The timelines that the run has of a plan's tier, and those that were cut off; None when it asks for none."""
    record = plan.settings.record
    if record is None:
        return None
    rows = [
        row
        for table in folder.scan("recordings", family=plan.sweep.name)
        for row in table.to_pylist()
        if row["tier"] == record.tier
    ]
    size = sum(part.bytes for part in folder.manifest.parts.get("timeline", []))
    cut = sum(row["until_cycle"] is not None for row in rows)
    text = (
        f"{plan.sweep.name}: {len(rows)} timeline(s) of the {record.tier} tier with "
        f"{sum(row['records'] for row in rows):,} records; all timelines of the run take {_size(size)}"
    )
    if cut:
        text += f". {cut} of them end early, at the limit (--timeline-limit): see until_cycle in the table recordings"
    return text


def _size(count: float) -> str:
    """A number of bytes in words."""
    for unit in ("kB", "MB", "GB"):
        count /= 1000.0
        if count < 999.5:
            return f"{count:.3g} {unit}"
    return f"{count / 1000.0:.3g} TB"

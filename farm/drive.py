"""The driver's loop: hand out batches, take what comes back, let the funnels decide, keep the snapshot of progress."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator

from farm.events import Best, Telemetry, TierProgress, now_text
from farm.executors.interface import Answer, Done, Ended, Executor, ExecutorError, Note
from farm.scheduler import Scheduler
from farm.sink import Sink
from interpreter.errors import FarmError
from jobs.stream import SweepStream
from jobs.work import TIERS, Finished, Kind, WorkItem

WAIT_SECONDS = 1.0
RATE_SECONDS = 60.0  # the rate shown is that of about the last minute
HOPELESS = 5  # items set aside because tools fail, with none that worked: the machine's fault


class Cancelled(FarmError):
    """Somebody asked the driver to stop; what was finished is kept."""


class Drive:
    """One submission's work on one executor. `stop` says, often, why the run should be given up (or nothing)."""

    def __init__(
        self,
        streams: list[SweepStream],
        executor: Executor,
        sink: Sink,
        telemetry: Telemetry,
        stop: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._streams = {stream.plan.sweep.name: stream for stream in streams}
        self._executor = executor
        self._sink = sink
        self._telemetry = telemetry
        self._stop = stop
        self.scheduler = Scheduler(self._fresh(), self._remaining, self._later, coming=self._coming, before=self._took)
        self.evaluated = 0
        self.waited_seconds = 0.0  # of the loop: the rest of its time is what scheduling costs
        self.elapsed_seconds = 0.0
        self._first_result = 0.0
        self._rate = 0.0
        self._rate_at = (0.0, 0)
        self._best: dict[tuple[str, str], Best] = {}
        self._tool_failures = 0

    def run(self, tick: Callable[[], None] = lambda: None) -> None:
        """Until nothing is left. `tick` is called about once a second and after every batch.

        Raises Cancelled, ExecutorError, and what writing raises; the executor is closed by whoever made it.
        """
        started = time.monotonic()
        gc.freeze()  # what is loaded by now stays: to go through it again would hold up hundreds of workers
        try:
            while True:
                why = self._stop()
                if why:
                    raise Cancelled(why)
                self._hand_out()
                if not self.scheduler.running and not self._more():
                    break
                before = time.monotonic()
                answers = self._executor.wait(WAIT_SECONDS)
                now = time.monotonic()
                self.waited_seconds += now - before
                for answer in answers:
                    self._take(answer)
                self._settle()
                self.elapsed_seconds = now - started
                self._update()
                tick()
        finally:
            gc.unfreeze()
            self.elapsed_seconds = time.monotonic() - started
            self._update()

    def _hand_out(self) -> None:
        workers = self._executor.workers
        for worker in self._executor.idle(min(self.scheduler.waiting(), workers)):
            now = time.monotonic()
            batch = self.scheduler.next_batch(worker, workers, now)
            if batch is None and self._more():
                batch = self.scheduler.next_batch(worker, workers, now)
            if batch is None:
                return
            self._executor.start(worker, batch)

    def _more(self) -> bool:
        """Whether there is anything to hand out, once the funnels have decided all they can."""
        if not self.scheduler.has_work():
            self._settle(all_of_it=True)
        return self.scheduler.has_work()

    def _settle(self, all_of_it: bool = False) -> None:
        for stream in self._streams.values():
            stream.settle(all_of_it)
            for promotion in stream.promotions():
                self.scheduler.promote(promotion)

    def _take(self, answer: Answer) -> None:
        progress = self._telemetry.progress
        if isinstance(answer, Done):
            worker = self.scheduler.running[answer.batch].worker
            finished = self.scheduler.done(answer)
            self._keep(finished, worker.node, worker.name)
        elif isinstance(answer, Ended):
            progress.worker_seconds += answer.seconds
            verdict = self.scheduler.ended(answer)
            for kind, text in verdict.notes:
                progress.workers_lost += kind == "worker_lost"
                self._telemetry.say(kind, text)
            for finished in verdict.results:
                self._give_up_on_tools(answer)
                self._keep(finished)
        elif isinstance(answer, Note):
            progress.workers_lost += answer.kind == "worker_lost"
            self._telemetry.say(answer.kind, answer.text, node=answer.node)

    def _give_up_on_tools(self, answer: Ended) -> None:
        if answer.cause == "tool":
            self._tool_failures += 1
            if self._tool_failures >= HOPELESS and self.evaluated <= self._tool_failures:
                raise ExecutorError(f"{answer.detail} (so did the {self._tool_failures} variants before)")

    def _keep(self, finished: Finished, node: str = "", worker: str = "") -> None:
        stream = self._streams[finished.family]
        stream.take(finished, node)
        if finished.tables or finished.encoded:  # of a batch from Ray the first result brings the rows of all
            self._sink.take(finished.tables, finished.encoded)
        self.evaluated += 1
        self._first_result = self._first_result or time.monotonic()
        progress = self._telemetry.progress
        if finished.failure is not None and not finished.record_only:  # the variant itself has an estimate
            progress.failures[finished.failure] = progress.failures.get(finished.failure, 0) + 1
        progress.cpu_seconds = round(progress.cpu_seconds + finished.cpu_seconds, 6)
        self._note_best(finished, stream)
        self._telemetry.say(
            "variant_finished",
            finished.message or "",
            family=finished.family,
            variant=finished.variant,
            arch=finished.arch,
            tiers=list(finished.tiers),
            failure=finished.failure,
            seconds=finished.seconds,
            cpu_seconds=finished.cpu_seconds,
            peak_bytes=finished.peak_bytes,
            times=finished.times,
            node=node,
            worker=worker,
        )

    def _note_best(self, finished: Finished, stream: SweepStream) -> None:
        for (target, tier), time_us in finished.times.items():
            if time_us is None:
                continue
            known = self._best.get((finished.family, target))
            if known is not None:
                later = TIERS.index(tier) - TIERS.index(known.tier)
                if later < 0 or later == 0 and (known.time_us, known.variant) <= (time_us, finished.variant):
                    continue
            parameters = dict(stream.plan.variants[target][finished.variant].parameters)
            self._best[finished.family, target] = Best(
                finished.family, target, finished.variant, parameters, tier, time_us
            )

    def _update(self) -> None:
        now = time.monotonic()
        progress, counts = self._telemetry.progress, self.scheduler.counts
        progress.updated_at = now_text()
        progress.elapsed_seconds = round(self.elapsed_seconds, 3)
        progress.workers = self._executor.workers
        progress.busy = len(self.scheduler.running)
        progress.nodes = dict(self._executor.nodes())
        progress.items_done = self.evaluated
        progress.items_left = self.items_left()
        progress.retried, progress.set_aside = counts.retried, counts.set_aside
        progress.under_way = self._executor.under_way()
        progress.best = list(self._best.values())
        progress.tiers = [
            TierProgress(name, c.tier, c.planned, c.done, c.failed, c.resumed, c.decided)
            for name, stream in self._streams.items()
            for c in stream.counts.values()
        ]
        at, done = self._rate_at
        if not at and self._first_result:
            self._rate_at = (self._first_result, 1)
        elif at and now - at >= 1.0:
            recent = (self.evaluated - done) / (now - at)
            # as if over the last minute; before that, over all there was
            weight = min(1.0, (now - at) / min(RATE_SECONDS, max(1.0, now - self._first_result)))
            self._rate += weight * (recent - self._rate)
            self._rate_at = (now, self.evaluated)
        progress.items_per_second = round(self._rate, 3)
        progress.seconds_left = round(progress.items_left / self._rate, 1) if self._rate > 0 else None

    def items_left(self) -> int:
        """About how many work items are still to be done, running ones and what the funnels will send on included."""
        return self.scheduler.running_items + max(self.scheduler.waiting(), self._coming())

    def _coming(self) -> int:
        """Work items of tiers whose funnel has not decided all, with workers or still to be, as far as can be said."""
        coming = 0
        for stream in self._streams.values():
            # pairs to items: as many targets share an item as did in the first tier
            share = max(1.0, len(stream.plan.targets) / max(1, len(stream.plan.architectures)))
            for counts in stream.counts.values():
                if not counts.decided:
                    coming += int(max(0, counts.planned - counts.done) / share)
        return coming

    def _fresh(self) -> Iterator[WorkItem]:
        for stream in self._streams.values():
            yield from stream.fresh()

    def _later(self, kind: Kind, variant: int) -> list[WorkItem]:
        return self._streams[kind[0]].later_items(kind, variant)

    def _took(self, kind: Kind, variant: int) -> float:
        return self._streams[kind[0]].took(kind[1], variant)

    def _remaining(self) -> int:
        return sum(stream.remaining() for stream in self._streams.values())

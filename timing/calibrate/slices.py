"""L2's slices: what one line gives, which lines share a slice, and what few lines give when all SMs ask for them."""

from __future__ import annotations

import numpy as np

from timing.calibrate.driver import Gpu, Kernel
from timing.calibrate.record import Results

LINE_BYTES = 128
MIB = 1 << 20
REPEATS = 3


class Slices:
    def __init__(self, gpu: Gpu, cubins: dict[str, bytes], results: Results) -> None:
        self.gpu, self.results = gpu, results
        self.module = gpu.load(cubins["slices"])
        self.out, self.where = gpu.buffer(1 << 12), gpu.buffer(1 << 12)

    def _rate(self, kernel: Kernel, data: object, places: list[int], width: int, steps: int) -> float:
        """Bytes a cycle of all SMs together from `places` (byte offsets, 2^n of them), each `width` bytes wide."""
        self.where.write(np.array(places, np.uint32))
        kernel.launch(
            self.gpu.sms,
            256,
            [self.out, data, self.where, np.uint32(len(places)), np.uint32(width), np.int32(steps)],
        )
        self.gpu.synchronize()
        cycles = self.out.read(np.uint32, 1 + self.gpu.sms)[1:]
        return self.gpu.sms * 8 * 8 * steps * width / float(cycles.max())

    def hot(self) -> None:
        """Bytes a cycle when all SMs read or write the same few lines or single sectors of lines, by their number."""
        data = self.gpu.buffer(16 * MIB, 0)
        random = np.random.default_rng(1)
        for name in ("hot_reads", "hot_writes"):
            kernel = self.gpu.kernel(self.module, name)
            for width in (32, LINE_BYTES):
                for count in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024):
                    for order in ("in a row", "at random"):
                        lines = np.arange(count) if order == "in a row" else random.integers(0, 1 << 17, count)
                        places = [int(line) * LINE_BYTES for line in lines]
                        values = [self._rate(kernel, data, places, width, 128) for _ in range(REPEATS + 1)]
                        self.results.add(
                            "slices", name, values[1:], "bytes/cycle", bytes=width, places=count, order=order
                        )
        data.free()

    def pairs(self) -> None:
        """How many of 4096 lines share a slice with the first: both together give no more than the first alone.

        Also bytes a cycle of two sectors by their distance: where a slice ends and the next begins.
        """
        data = self.gpu.buffer(16 * MIB, 0)
        kernel = self.gpu.kernel(self.module, "hot_reads")
        for distance in (0, 32, 64, 96, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 1 << 17, 1 << 18):
            values = [self._rate(kernel, data, [0, distance], 32, 64) for _ in range(REPEATS + 1)]
            self.results.add("slices", "two_sectors", values[1:], "bytes/cycle", distance=distance)
        alone = self._rate(kernel, data, [0, 0], LINE_BYTES, 16)
        rates = np.array([self._rate(kernel, data, [0, line * LINE_BYTES], LINE_BYTES, 16) for line in range(1, 4097)])
        self.results.add("slices", "sharing_a_slice", [float((rates < 1.3 * alone).sum())], "lines", lines=4096)
        for percent in (1, 5, 25, 50, 75, 95, 99):
            value = float(np.percentile(rates, percent) / alone)
            self.results.add("slices", "two_lines", [value], "of one line", percentile=percent, lines=4096)
        data.free()

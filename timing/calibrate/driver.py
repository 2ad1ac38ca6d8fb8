"""A thin layer over the CUDA driver API, through ctypes: all that the microbenchmarks need of a real GPU.

Needs nothing but NumPy and the driver's own libcuda.so.1, so that a calibration runs on any machine with a GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from interpreter.errors import FarmError

# CUfunction_attribute and CUdevice_attribute values (CUDA driver API reference).
_MAX_DYNAMIC_SHARED = 8
_SHARED_CARVEOUT = 9
_FUNCTION_REGISTERS = 4
_DEVICE_ATTRIBUTES = {
    "sms": 16,
    "clock_khz": 13,
    "memory_clock_khz": 36,
    "bus_bits": 37,
    "l2_bytes": 38,
    "capability_major": 75,
    "capability_minor": 76,
    "shared_per_sm": 81,
}


class DriverError(FarmError):
    """A driver call failed, or no driver is there."""


class Buffer:
    """Device memory of `nbytes`, freed with the object."""

    def __init__(self, gpu: Gpu, nbytes: int) -> None:
        self._gpu = gpu
        self.nbytes = nbytes
        pointer = ctypes.c_uint64()
        gpu.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(nbytes))
        self.address = pointer.value

    def write(self, array: np.ndarray) -> None:
        data = np.ascontiguousarray(array)
        if data.nbytes > self.nbytes:
            raise DriverError(f"writing {data.nbytes} bytes into a buffer of {self.nbytes}")
        self._gpu.call(
            "cuMemcpyHtoD_v2",
            ctypes.c_uint64(self.address),
            ctypes.c_void_p(data.ctypes.data),
            ctypes.c_size_t(data.nbytes),
        )

    def read(self, dtype: type | np.dtype | str, count: int) -> np.ndarray:
        out = np.empty(count, dtype)
        if out.nbytes > self.nbytes:
            raise DriverError(f"reading {out.nbytes} bytes from a buffer of {self.nbytes}")
        self._gpu.call(
            "cuMemcpyDtoH_v2",
            ctypes.c_void_p(out.ctypes.data),
            ctypes.c_uint64(self.address),
            ctypes.c_size_t(out.nbytes),
        )
        return out

    def fill(self, word: int = 0) -> None:
        self._gpu.call(
            "cuMemsetD32_v2", ctypes.c_uint64(self.address), ctypes.c_uint32(word), ctypes.c_size_t(self.nbytes // 4)
        )

    def free(self) -> None:
        if self.address:
            self._gpu.call("cuMemFree_v2", ctypes.c_uint64(self.address))
            self.address = 0


class Kernel:
    """One entry of a loaded module."""

    def __init__(self, gpu: Gpu, module: ctypes.c_void_p, name: str) -> None:
        self._gpu = gpu
        self.name = name
        self.handle = ctypes.c_void_p()
        gpu.call("cuModuleGetFunction", ctypes.byref(self.handle), module, name.encode())
        self._sizes = gpu.parameter_sizes(self.handle)

    def allow_shared(self, nbytes: int) -> None:
        """Permit `nbytes` of dynamic shared memory a CTA (needed above 48 KiB)."""
        self._gpu.call("cuFuncSetAttribute", self.handle, _MAX_DYNAMIC_SHARED, nbytes)

    def carveout(self, percent: int) -> None:
        """Preferred share of the unified L1 given to shared memory: 0..100, or -1 for the driver's choice."""
        self._gpu.call("cuFuncSetAttribute", self.handle, _SHARED_CARVEOUT, percent)

    @property
    def registers(self) -> int:
        value = ctypes.c_int()
        self._gpu.call("cuFuncGetAttribute", ctypes.byref(value), _FUNCTION_REGISTERS, self.handle)
        return value.value

    def launch(
        self, grid: Sequence[int] | int, block: Sequence[int] | int, arguments: Sequence[object], shared: int = 0
    ) -> None:
        """Queue one launch. Arguments: Buffer, or a ctypes or NumPy scalar of the parameter's own type."""
        gx, gy, gz = _three(grid)
        bx, by, bz = _three(block)
        cells = [_cell(value) for value in arguments]
        given = [ctypes.sizeof(cell) for cell in cells]
        if self._sizes is not None and given != self._sizes:
            raise DriverError(f"kernel {self.name} takes parameters of {self._sizes} bytes, not {given}")
        table = (ctypes.c_void_p * max(1, len(cells)))(*[ctypes.addressof(cell) for cell in cells])
        self._gpu.call(
            "cuLaunchKernel",
            self.handle,
            gx,
            gy,
            gz,
            bx,
            by,
            bz,
            shared,
            self._gpu.stream,
            table,
            ctypes.c_void_p(None),
        )


def _three(value: Sequence[int] | int) -> tuple[int, int, int]:
    items = [value] if isinstance(value, int | np.integer) else list(value)
    items += [1] * (3 - len(items))
    return int(items[0]), int(items[1]), int(items[2])


_SCALARS = {
    "i4": ctypes.c_int32,
    "u4": ctypes.c_uint32,
    "i8": ctypes.c_int64,
    "u8": ctypes.c_uint64,
    "f4": ctypes.c_float,
    "f8": ctypes.c_double,
}


def _cell(value: object) -> ctypes._SimpleCData:  # type: ignore[type-arg]
    if isinstance(value, Buffer):
        return ctypes.c_uint64(value.address)
    if isinstance(value, np.generic):
        return _SCALARS[value.dtype.str[1:]](value.item())
    if isinstance(value, bool):
        return ctypes.c_int32(int(value))
    if isinstance(value, int):
        return ctypes.c_int32(value)
    if isinstance(value, float):
        return ctypes.c_float(value)
    if isinstance(value, ctypes._SimpleCData):
        return value
    raise DriverError(f"cannot pass {value!r} to a kernel")


class Gpu:
    """The first CUDA device, with one stream."""

    def __init__(self, ordinal: int = 0) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise DriverError(f"no CUDA driver (libcuda.so.1) on this machine: {error}") from None
        self.call("cuInit", 0)
        device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), ordinal)
        self._device = device
        self._begin()
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, 256, device)
        self.name = name.value.decode()
        version = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(version))
        self.driver_api = version.value
        self.attributes = {key: self._attribute(number) for key, number in _DEVICE_ATTRIBUTES.items()}
        self.sms = self.attributes["sms"]

    def _begin(self) -> None:
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self.call("cuCtxSetCurrent", context)
        self.stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(self.stream), 1)

    def reset(self) -> None:
        """Start anew after a kernel's fault, which ends the context: buffers, modules and kernels are gone."""
        self.call("cuDevicePrimaryCtxReset_v2", self._device)
        self._begin()

    def call(self, function: str, *arguments: object) -> None:
        """Call one driver function; anything but success raises DriverError with the driver's name for it."""
        code = getattr(self._library, function)(*arguments)
        if code != 0:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(text))
            raise DriverError(f"{function} failed: {(text.value or b'?').decode()} ({code})")

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), number, self._device)
        return value.value

    def load(self, cubin: bytes | Path) -> ctypes.c_void_p:
        image = cubin.read_bytes() if isinstance(cubin, Path) else cubin
        module = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), image)
        return module

    def parameter_sizes(self, kernel: ctypes.c_void_p) -> list[int] | None:
        """Bytes of each parameter of a kernel; None with drivers before 12.4, which do not tell."""
        query = getattr(self._library, "cuFuncGetParamInfo", None)
        if query is None:
            return None
        sizes: list[int] = []
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        while query(kernel, ctypes.c_size_t(len(sizes)), ctypes.byref(offset), ctypes.byref(size)) == 0:
            sizes.append(size.value)
        return sizes

    def kernel(self, module: ctypes.c_void_p, name: str) -> Kernel:
        return Kernel(self, module, name)

    def symbol(self, module: ctypes.c_void_p, name: str) -> tuple[int, int]:
        """Address and size in bytes of a __device__ or __constant__ variable."""
        pointer, size = ctypes.c_uint64(), ctypes.c_size_t()
        self.call("cuModuleGetGlobal_v2", ctypes.byref(pointer), ctypes.byref(size), module, name.encode())
        return pointer.value, size.value

    def buffer(self, nbytes: int, fill: int | None = 0) -> Buffer:
        made = Buffer(self, nbytes)
        if fill is not None:
            made.fill(fill)
            self.synchronize()
        return made

    def synchronize(self) -> None:
        self.call("cuCtxSynchronize")

    def time(self, work: Callable[[], None]) -> float:
        """Microseconds between two events around what `work` queues on the stream."""
        start, stop = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(start), 0)
        self.call("cuEventCreate", ctypes.byref(stop), 0)
        self.call("cuEventRecord", start, self.stream)
        work()
        self.call("cuEventRecord", stop, self.stream)
        self.call("cuEventSynchronize", stop)
        value = ctypes.c_float()
        self.call("cuEventElapsedTime", ctypes.byref(value), start, stop)
        self.call("cuEventDestroy_v2", start)
        self.call("cuEventDestroy_v2", stop)
        return value.value * 1e3

    def graph_time(self, launch: Callable[[], None], count: int, replays: int = 7) -> list[float]:
        """Microseconds of one launch in a CUDA graph of `count` back-to-back ones, once a replay (warm-up left out)."""
        graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuStreamBeginCapture_v2", self.stream, 2)
        for _ in range(count):
            launch()
        self.call("cuStreamEndCapture", self.stream, ctypes.byref(graph))
        self.call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))

        def replay() -> None:
            self.call("cuGraphLaunch", executable, self.stream)

        replay()
        self.synchronize()
        times = [self.time(replay) / count for _ in range(replays)]
        self.call("cuGraphExecDestroy", executable)
        self.call("cuGraphDestroy", graph)
        return times

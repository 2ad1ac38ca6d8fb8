"""Compiles what a program needs and no more: handlers by form and runtime functions by name, cached as object code.

New forms of a program are emitted into one module and compiled to one object file; each runtime function is an object
of its own. Objects and what is known of a shape (its literal operands, forms, field recipes) are kept on disk under the
emitters' source text, the CPU and LLVM's version, so that a later process neither emits nor compiles. Files are written
under a temporary name and renamed; a lost update costs a compilation, never a wrong result.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm
import llvmlite.ir as ir

import interpreter
from interpreter.backends import llvm_atomics, llvm_memory, llvm_scheduler, llvm_trace  # noqa: F401  (they register)
from interpreter.backends.llvm_control import GENERATORS
from interpreter.backends.llvm_effects import LlvmEmitter
from interpreter.isa import registry
from interpreter.lowering import Form, FormKey, FormOperands, literal_of

Literals = tuple[int, ...]


def cache_folder() -> Path | None:
    """Where object code is kept: FARM_CACHE/llvm, default ~/.cache/farm/llvm; None when FARM_CACHE is empty (off)."""
    chosen = os.environ.get("FARM_CACHE")
    if chosen == "":
        return None
    return (Path(chosen) if chosen else Path.home() / ".cache" / "farm") / "llvm"


@lru_cache(maxsize=1)
def source_fingerprint() -> str:
    """Hash of everything that decides the emitted code: emitters, back end, LLVM and CPU."""
    digest = hashlib.sha256()
    root = Path(interpreter.__file__).parent
    files = [*(root / "isa").glob("*.py"), *(root / "backends").glob("*.py"), root / "lowering.py", root / "trace.py"]
    for path in sorted(files):
        digest.update(path.name.encode() + path.read_bytes())
    features = llvm.get_host_cpu_features().flatten()
    digest.update(f"{llvmlite.__version__} {llvm.llvm_version_info} {llvm.get_host_cpu_name()} {features}".encode())
    return digest.hexdigest()[:32]


@dataclass(slots=True)
class Shape:
    """What is known of a shape: which operands are literals, and the form and object of each set of literal values."""

    positions: tuple[int, ...]
    forms: dict[Literals, tuple[Form, str, tuple[str, ...]]] = field(default_factory=dict)  # form, object, calls


class DiskCache:
    """Pickled entries under one folder a fingerprint. Reading never fails: a bad entry is as good as none."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder / source_fingerprint() if folder else None

    def read(self, name: str) -> object | None:
        if self.folder is None:
            return None
        try:
            return pickle.loads((self.folder / name).read_bytes())  # type: ignore[no-any-return]
        except FileNotFoundError:
            return None
        except (OSError, EOFError, ValueError, AttributeError, ImportError, pickle.UnpicklingError):
            return None

    def write(self, name: str, entry: object) -> None:
        """Write under a temporary name, then rename. A cache that cannot be written is no error."""
        if self.folder is None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
                file.write(pickle.dumps(entry))
            os.replace(file.name, self.folder / name)
        except OSError:
            self.folder = None


class Engine:
    """One per process: the compiled handlers and runtime functions. Not thread-safe."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.target = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
        )
        self.jit = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self.target)
        self.addresses: dict[str, int] = {}
        self.shapes: dict[FormKey, Shape] = {}
        self.disk = DiskCache(cache_folder())
        self.linked: set[str] = set()  # object names
        self.compile_seconds = 0.0

    # ------------------------------------------------------------------ objects

    def compile(self, module: ir.Module) -> bytes:
        started = time.perf_counter()
        module.triple = llvm.get_default_triple()
        parsed = llvm.parse_assembly(str(module))
        passes = llvm.create_new_module_pass_manager()
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
        passes.run(parsed, llvm.create_pass_builder(self.target, llvm.create_pipeline_tuning_options(speed_level=1)))
        image = bytes(self.target.emit_object(parsed))
        self.compile_seconds += time.perf_counter() - started
        return image

    def link(self, objects: dict[str, bytes], symbols: Iterable[str]) -> None:
        """Add object files (by name, once each) and make their symbols callable."""
        fresh = [name for name in objects if name not in self.linked]
        for name in fresh:
            self.jit.add_object_file(llvm.object_file.ObjectFileRef.from_data(objects[name]))
            self.linked.add(name)
        self.jit.finalize_object()
        for symbol in symbols:
            if symbol in self.addresses:
                continue
            address = self.jit.get_function_address(symbol)
            if not address:
                raise RuntimeError(f"compiled code lacks {symbol}")
            self.addresses[symbol] = address

    def _runtime_objects(self, names: Iterable[str]) -> dict[str, bytes]:
        """Objects of runtime functions not linked yet, with all they call."""
        objects: dict[str, bytes] = {}
        queue = sorted(names)
        while queue:
            name = queue.pop()
            if name in objects or name in self.linked:
                continue
            entry = self.disk.read(name)
            if not isinstance(entry, tuple):
                if name not in GENERATORS:
                    raise KeyError(f"no runtime function {name}")
                module = ir.Module()
                calls = GENERATORS[name](module, name)
                entry = (self.compile(module), tuple(sorted(calls)))
                self.disk.write(name, entry)
            objects[name] = entry[0]
            queue.extend(entry[1])
        return objects

    def require(self, names: Iterable[str]) -> None:
        """Make runtime functions callable."""
        missing = [name for name in names if name not in self.addresses]
        if missing:
            objects = self._runtime_objects(missing)
            self.link(objects, [*objects, *missing])

    # ------------------------------------------------------------------ forms

    def shape(self, key: FormKey) -> Shape | None:
        if key not in self.shapes:
            stored = self.disk.read(_name(key))
            if not isinstance(stored, Shape):
                return None
            self.shapes[key] = stored
        return self.shapes[key]


def _name(key: object) -> str:
    return hashlib.sha256(repr(key).encode()).hexdigest()[:32]


@lru_cache(maxsize=1)
def engine() -> Engine:
    return Engine()


def emit_form(module: ir.Module, symbol: str, operands: FormOperands, guarded: bool) -> set[str]:
    """Emit the handler of a form; gives the runtime functions it calls. Raises Unsupported."""
    emitter = LlvmEmitter(module, symbol, operands, guarded)
    entry = registry.find(operands.original)
    assert entry is not None
    entry.meaning(emitter, operands.masked)
    emitter.finish()
    return emitter.code.needs


class Batch:
    """Finds or emits the forms of one program; `finish` compiles what is new and links everything."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.module = ir.Module()
        self.fresh: list[tuple[FormKey, Literals, Form, set[str]]] = []
        self.pending: dict[tuple[FormKey, Literals], Form] = {}
        self.objects: set[str] = set()
        self.calls: set[str] = set()
        self.symbols: set[str] = set()

    def form(self, instruction_operands: FormOperands, shape: FormKey, guarded: bool) -> Form:
        """The form of an instruction: from this process, the disk, or emitted now. Raises Unsupported."""
        original = instruction_operands.original.operands
        known = self.engine.shape(shape)
        if known is not None:
            values = tuple(literal_of(original[p]) for p in known.positions)
            found = known.forms.get(values)
            if found is not None:
                form, name, calls = found
                self.objects.add(name)
                self.calls.update(calls)
                self.symbols.add(form.symbol)
                return form
            if (shape, values) in self.pending:
                return self.pending[shape, values]
        scratch = ir.Module()
        all_values = tuple(literal_of(op) for op in original)
        symbol = "form_" + _name((shape, all_values))
        calls_made = emit_form(scratch, symbol, instruction_operands, guarded)
        positions = tuple(sorted(instruction_operands.literals))
        if known is None:
            known = self.engine.shapes[shape] = Shape(positions)
        elif not set(positions) <= set(known.positions):
            # another branch of the emitter asked for more: forms known by fewer literals are emitted again when needed
            known.positions = tuple(sorted({*known.positions, *positions}))
            known.forms.clear()
        values = tuple(literal_of(original[p]) for p in known.positions)
        form = Form((shape, values), symbol, list(instruction_operands.recipes))
        for name, item in scratch.globals.items():
            if name not in self.module.globals:
                self.module.globals[name] = item
        self.pending[shape, values] = form
        self.fresh.append((shape, values, form, calls_made))
        return form

    def finish(self) -> None:
        engine = self.engine
        images: dict[str, bytes] = {}
        if self.fresh:
            name = "forms_" + _name(sorted(form.symbol for _, _, form, _ in self.fresh))
            image = engine.compile(self.module)
            calls = tuple(sorted(set().union(*(made for *_, made in self.fresh))))
            engine.disk.write(name, image)
            images[name] = image
            self.calls.update(calls)
            for shape, values, form, made in self.fresh:
                engine.shapes[shape].forms[values] = (form, name, tuple(sorted(made)))
                self.symbols.add(form.symbol)
            for shape in {shape for shape, *_ in self.fresh}:
                engine.disk.write(_name(shape), engine.shapes[shape])
            # an object is linked whole: the calls of all its forms must resolve
            engine.disk.write(name + ".calls", calls)
        for name in self.objects - engine.linked:
            stored = engine.disk.read(name)
            needed = engine.disk.read(name + ".calls")
            if not isinstance(stored, bytes) or not isinstance(needed, tuple):
                raise CacheLost(name)
            images[name] = stored
            self.calls.update(needed)
        images.update(engine._runtime_objects(self.calls))
        engine.link(images, [*self.symbols, *self.calls])


class CacheLost(Exception):
    """A shape on disk names an object that is gone: forget what the disk said and start again."""

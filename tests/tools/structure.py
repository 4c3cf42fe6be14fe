"""Count what a reader of ppgp/ trips over: halves of classes, attics, scraps, doors and circles.

    python tests/tools/structure.py           # the counts
    python tests/tools/structure.py --all     # and every place

No length of a file or a function counts: a class that is one idea stays whole, however long.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
AT_THE_TOP = {"__init__", "__main__", "errors"}  # modules that belong beside the rooms
FULL = 30  # modules that a folder may hold
SHORT = 120  # lines below which a module with one importer, in its own folder, is a scrap
SECTIONS = {"Args:", "Attributes:", "Raises:", "Returns:"}
FORMER = re.compile(
    r"Renamed\(|@renamed_arguments|@removed_arguments|take_renamed|FORMAT_1|RENAMED"
)


class Module:
    """A module of the package, read from its file.

    Attributes:
        path: Its file, relative to the folder of the package.
        name: Its dotted name.
        text: What the file holds.
        tree: The same, parsed.
    """

    def __init__(self, file: Path, package: Path) -> None:
        self.path = file.relative_to(package.parent)
        self.is_package = file.name == "__init__.py"
        self.name = ".".join(self.path.with_suffix("").parts).removesuffix(".__init__")
        self.text = file.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)

    @property
    def folder(self) -> str:
        """The dotted name of the folder that holds the file."""
        return self.name if self.is_package else self.name.rpartition(".")[0]

    def imports(self, known: set[str]) -> set[str]:
        """Return the modules among ``known`` that this one imports, for type checking too."""
        found = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                source = self._source(node)
                for alias in node.names:
                    inner = f"{source}.{alias.name}"
                    found.add(inner if inner in known else source)
        return (found & known) - {self.name}

    def _source(self, node: ast.ImportFrom) -> str:
        """Return the absolute name of the module that a statement imports from."""
        module = node.module or ""
        if not node.level:
            return module
        parts = self.folder.split(".")
        above = parts[: len(parts) - node.level + 1]
        return ".".join([*above, module] if module else above)


class House:
    """The modules of a package.

    Attributes:
        modules: All modules, by name.
        imports: The modules that each one imports. The ``__init__`` of a folder, which passes
            names on, counts as importing nothing.
    """

    def __init__(self, package: Path = ROOT / "ppgp") -> None:
        found = (Module(file, package) for file in sorted(package.rglob("*.py")))
        self.modules = {module.name: module for module in found}
        known = set(self.modules)
        self.imports = {
            name: set() if module.is_package else module.imports(known)
            for name, module in self.modules.items()
        }

    def halves(self) -> list[str]:
        """Return classes that exactly one other class completes.

        They are neither public, nor abstract, nor made by themselves.
        """
        places, children, made = defaultdict(list), defaultdict(list), Counter()
        public = set()
        for module in self.modules.values():
            if module.is_package:
                public |= set(re.findall(r"\b[A-Z]\w+", module.text))
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append((module, node))
                    for base in node.bases:
                        children[_last_word(base)].append(node.name)
                elif isinstance(node, ast.Call):
                    made[_last_word(node.func)] += 1
        found = []
        for name, where in places.items():
            alone = len(where) == 1 and len(children[name]) == 1
            if alone and not made[name] and name not in public and not _is_abstract(where[0][1]):
                found.append(f"{where[0][0].path}: {name} of {children[name][0]}")
        return found

    def full_folders(self) -> list[str]:
        """Return the folders with more modules than a reader can overlook."""
        inside = Counter(m.folder for m in self.modules.values() if not m.is_package)
        return [f"{folder}: {n} modules" for folder, n in inside.items() if n > FULL]

    def scraps(self) -> list[str]:
        """Return short modules with one importer, in their own folder."""
        importers = defaultdict(set)
        for name, targets in self.imports.items():
            for target in targets:
                importers[target].add(name)
        found = []
        for name, module in self.modules.items():
            if module.is_package or len(importers[name]) != 1:
                continue
            (importer,) = importers[name]
            near = importer.rpartition(".")[0] == module.folder
            if near and len(module.text.splitlines()) < SHORT:
                found.append(str(module.path))
        return found

    def loose(self) -> list[str]:
        """Return the modules beside the rooms."""
        return [m.path.name for m in self._top() if m.path.stem not in AT_THE_TOP]

    def doors(self) -> list[str]:
        """Return modules beside the rooms that define nothing: they pass names on."""
        kinds = (ast.FunctionDef, ast.ClassDef)
        return [
            m.path.name
            for m in self._top()
            if m.path.stem not in AT_THE_TOP and not any(isinstance(n, kinds) for n in m.tree.body)
        ]

    def circles(self) -> list[str]:
        """Return groups of modules of which each one reaches the others by imports."""
        reached = {name: self._reached(name) for name in self.imports}
        groups = {
            frozenset(other for other in reached[name] if name in reached[other])
            for name in reached
            if name in reached[name]
        }
        return [" <-> ".join(sorted(group)) for group in groups]

    def former_names(self) -> list[str]:
        """Return uses of names that the library once had."""
        modules = self.modules.values()
        return [f"{m.path}: {found}" for m in modules for found in FORMER.findall(m.text)]

    def small_entries(self) -> list[str]:
        """Return entries of Args, Attributes, Raises and Returns that begin with a small letter."""
        found = []
        for module in self.modules.values():
            for node in ast.walk(module.tree):
                if isinstance(node, ast.FunctionDef | ast.ClassDef):
                    found += [f"{module.path}: {entry}" for entry in _small_entries(node)]
        return found

    def _top(self) -> list[Module]:
        return [m for m in self.modules.values() if len(m.path.parts) == 2]

    def _reached(self, name: str) -> set[str]:
        """Return all modules that one imports, directly or through others."""
        reached, waiting = set(), list(self.imports[name])
        while waiting:
            other = waiting.pop()
            if other not in reached:
                reached.add(other)
                waiting += self.imports[other]
        return reached


def _last_word(node: ast.expr) -> str:
    """Return the name of a class or function, without its module and its type parameters."""
    return ast.unparse(node).split("[")[0].rpartition(".")[2]


def _is_abstract(node: ast.ClassDef) -> bool:
    """Whether a class is a protocol or has abstract methods."""
    bases = " ".join(map(ast.unparse, node.bases))
    decorators = (
        ast.unparse(decorator)
        for member in node.body
        if isinstance(member, ast.FunctionDef)
        for decorator in member.decorator_list
    )
    return "Protocol" in bases or "ABC" in bases or any("abstract" in text for text in decorators)


def _small_entries(node: ast.FunctionDef | ast.ClassDef) -> Iterator[str]:
    """Yield the entries of a docstring whose description begins with a small letter."""
    inside = False
    for line in (ast.get_docstring(node) or "").splitlines():
        if line and not line[0].isspace():
            inside = line.rstrip() in SECTIONS
        elif inside and re.match(r" {4}[\w*.]+(?: \([^)]*\))?: [a-z]", line):
            yield line.strip()


COUNTS = {
    "halves of classes": House.halves,
    f"folders with more than {FULL} modules": House.full_folders,
    f"modules under {SHORT} lines with one importer, in their folder": House.scraps,
    "modules beside the rooms": House.loose,
    "doors": House.doors,
    "circles of imports": House.circles,
    "former names": House.former_names,
    "entries that begin small": House.small_entries,
}


def main() -> None:
    """Print the counts."""
    house = House()
    folders = {module.folder for module in house.modules.values()}
    print(f"{len(house.modules)} files in {len(folders)} folders")
    for title, count in COUNTS.items():
        places = count(house)
        print(f"{len(places):5d} {title}")
        if "--all" in sys.argv:
            print(*(f"        {place}" for place in sorted(places)), sep="\n")


if __name__ == "__main__":
    main()

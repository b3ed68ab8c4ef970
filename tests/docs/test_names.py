#!/usr/bin/env python3
"""What the documents name is there: files of this repository, targets of links, functions. test_names.py SOURCE_DIR"""
import os
import re
import sys

ENDINGS = "c|h|cu|cuh|md|sh|py|proto|map|sbatch|service|yaml|yml|cmake|txt"
FILE = re.compile(r"(?<![\w.*-])[\w./-]+\.(?:%s)\b(?![\w*(])" % ENDINGS)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)")
CALL = re.compile(r"\b([a-z]\w*_\w+)\(")
ELSEWHERE = {  # files of other projects
    "prims_simple.h",  # NCCL's
    "cuda.h",
    "nccl.h",
}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def tree(root):
    """Paths of what is kept: no build folders, nothing hidden."""
    paths = []
    for folder, folders, files in os.walk(root):
        here = os.path.relpath(folder, root)
        top = here == "."
        folders[:] = [f for f in folders if not f.startswith(".") and not (top and f.startswith(("build", "install")))]
        paths += [os.path.normpath(os.path.join(here, f)) for f in files]
    return set(paths)


def named_elsewhere(name):
    return name in ELSEWHERE or name.startswith(("/", "build/"))


def check(root, paths, document, code):
    """Lines that name what is not there."""
    endings = {path for path in paths} | {path.split("/", n)[n] for path in paths for n in range(1, path.count("/") + 1)}
    folders = {os.path.dirname(path) for path in paths}
    folders |= {folder.rsplit("/", n)[0] for folder in folders for n in range(1, folder.count("/") + 1)}
    for number, line in enumerate(read(os.path.join(root, document)).splitlines(), 1):
        for link in LINK.findall(line):
            target = os.path.normpath(os.path.join(os.path.dirname(document), link))
            if not link.startswith(("http:", "https:", "mailto:")) and target not in paths and target not in folders:
                yield f"{document}:{number}: a link to {link}, which is not there"
        for text in CODE.findall(line):
            for name in FILE.findall(text):
                if name.lstrip("./") not in endings and not named_elsewhere(name):
                    yield f"{document}:{number}: {name} is no file of this repository"
            for name in CALL.findall(text):
                if name not in code:
                    yield f"{document}:{number}: no source has {name}()"


def main():
    root = sys.argv[1]
    paths = tree(root)
    code = set()
    for path in paths:
        if path.endswith((".c", ".h", ".cu", ".cuh", ".proto", ".py", ".sh", ".cmake")) or path.endswith("CMakeLists.txt"):
            code |= set(re.findall(r"\b[a-z]\w*_\w+\b", read(os.path.join(root, path))))
    documents = sorted(path for path in paths if path.endswith(".md"))
    wrong = [line for document in documents for line in check(root, paths, document, code)]
    for line in wrong:
        print(line)
    print(f"{len(documents)} documents name {'nothing that is not there' if not wrong else f'{len(wrong)} things that are not there'}")
    return 1 if wrong or len(documents) < 10 else 0


if __name__ == "__main__":
    sys.exit(main())

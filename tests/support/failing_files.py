"""Real file errors for a process of one's own: a shim under `pread` and `pwrite`, made by `cc`.

While the file `trouble` is there, reading and writing files whose path holds `name` fails with EIO,
as a dying card's do. Where there is no compiler the test is skipped (in CI: fails).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int fails(int fd, const char *what)
{
    char link[64], path[4096];
    const char *flag = getenv("OPID_TROUBLE"), *name = getenv("OPID_TROUBLE_NAME");
    if (!flag || !name || access(flag, F_OK))
        return 0;
    if (!strstr(getenv("OPID_TROUBLE_CALLS"), what))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    if (!strstr(path, name))
        return 0;
    errno = EIO;
    return 1;
}

#define SHIMMED(name, kind, buffer)                                        \
    ssize_t name(int fd, buffer b, size_t n, off_t at)                     \
    {                                                                      \
        static ssize_t (*real)(int, buffer, size_t, off_t);                \
        if (!real)                                                         \
            real = (ssize_t (*)(int, buffer, size_t, off_t))dlsym(RTLD_NEXT, #name); \
        return fails(fd, kind) ? -1 : real(fd, b, n, at);                  \
    }
SHIMMED(pread, "read", void *)
SHIMMED(pread64, "read", void *)
SHIMMED(pwrite, "write", const void *)
SHIMMED(pwrite64, "write", const void *)
"""


def failing_files(
    folder: Path, name: str, calls: str = "read write"
) -> tuple[dict[str, str], Path]:
    """The environment of a process whose files will fail, and the file that makes them."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        reason = "no C compiler: apt-get install gcc"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    source, library, trouble = folder / "shim.c", folder / "shim.so", folder / "trouble"
    source.write_text(SHIM)
    command = [compiler, "-shared", "-fPIC", "-O1", str(source), "-o", str(library), "-ldl"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    environment = {
        "LD_PRELOAD": str(library),
        "OPID_TROUBLE": str(trouble),
        "OPID_TROUBLE_NAME": name,
        "OPID_TROUBLE_CALLS": calls,
    }
    return environment, trouble

"""A control group with little memory, in which programs that a test starts find themselves on a small machine."""
import contextlib
import errno
import os
import pathlib
import time

import pytest

ROOTS = {"memory": ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), "": ("/sys/fs/cgroup", "memory.max")}


def own_group():
    """The folder of this process's group that limits memory, and the limit's file: of version 1 where there is one."""
    paths = {}
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        paths[controllers] = path
    for controller, (root, limit) in ROOTS.items():
        folder = pathlib.Path(root + paths.get(controller, "/"))
        if controller in paths and folder.is_dir():
            return folder, limit
    pytest.skip("no control group of this process can be seen")


def leave(group, above):
    """Moves everybody up and removes the group, which is busy as long as a process that has ended is not quite gone."""
    for _ in range(1200):
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                (above / "cgroup.procs").write_text(pid)
        try:
            group.rmdir()
            return
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
        time.sleep(0.05)
    raise AssertionError(f"{group} stays busy")


@contextlib.contextmanager
def small_machine(size):
    """Programs started inside have `size` bytes, for their own pages and those of files that they bring in. Skips where groups
    cannot be made."""
    above, limit = own_group()
    group = above / f"retro-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    try:
        try:
            (group / limit).write_text(str(size))
            (group / "cgroup.procs").write_text(str(os.getpid()))
        except OSError as error:
            pytest.skip(f"the control group cannot limit memory: {error}")
        yield group
    finally:
        leave(group, above)

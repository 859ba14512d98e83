"""Ways around the walls that go through the kernel: memory beyond the limit, the host's files and names.

Each attack prints what it got; a wall holds where it prints nothing.
"""

import platform
import socket
from pathlib import Path

import pytest
from sandbox_programs import run

import mas
from mas.sandbox.box import Sandbox
from mas.sandbox.inside import calls
from mas.sandbox.mechanism import Mechanism
from mas.sandbox.outcome import SandboxLimits

CALLS = {
    "io_uring": "call(425, 425, 8, ctypes.create_string_buffer(120))",
    "aio": "call(206, 0, 8, ctypes.byref(ctypes.c_ulong()))",
    "memfd": "call(319, 279, b'x', 0)",
    "memfd of huge pages": "call(319, 279, b'x', 4)",
    "secret memory": "call(447, 447, 0)",
    "huge pages of the host": "(libc.mmap(None, 2 << 20, 3, 0x40022, -1, 0) + 1) % 2**64 or None",
    "locked memory": "call(149, 228, ctypes.create_string_buffer(8192), 4096)",
    "all memory locked": "call(151, 230, 1)",
    "userfaultfd": "call(323, 282, 1)",
    "System V shared memory": "call(29, 194, 77, 4096, 0o1600)",
    "System V semaphores": "call(64, 190, 77, 1, 0o1600)",
    "System V messages": "call(68, 186, 77, 0o1600)",
    "POSIX messages": "call(240, 180, b'x', 0o102, 0o600, None)",
    "the session's keyring": "call(250, 219, 0, -3, 1)",
    "a key for others": "call(248, 217, b'user', b'x', b'text', 4, -4)",
    "the table of another process' files": "call(434, 434, 1, 0)",
    "a file of another process": "call(438, 438, 1, 1, 0)",
    "memory of another process": "call(310, 270, 1, None, 0, None, 0, 0)",
    "a trace of another process": "call(101, 117, 16, 1, 0, 0)",
    "the comparison of processes": "call(312, 272, 1, 1, 0, 0, 0)",
    "a lock on a file of the host": "call(73, 32, os.open(os.__file__, os.O_RDONLY), 6)",
    "a lock on a device of the host": "call(73, 32, os.open('/dev/null', os.O_RDONLY), 6)",
    "a watch on files of the host": "call(294, 26, 0)",
    "a watch through fanotify": "call(300, 262, 0, 0)",
    "a notice of a directory": "call(72, 25, os.open('/dev', os.O_RDONLY), 1026, 2)",
    "a lease": "(open('x', 'w').close(), call(72, 25, os.open('x', os.O_RDONLY), 1024, 0))[1]",
    "a larger pipe": "call(72, 25, os.pipe()[1], 1031, 1 << 20)",
    "pages of a file in a pipe": "call(275, 76, os.open(os.__file__, os.O_RDONLY), None, os.pipe()[1], None, 4096, 0)",
    "pages of a file sent to a pipe": "call(40, 71, os.pipe()[1], os.open(os.__file__, os.O_RDONLY), None, 4096)",
    "pipes that share pages": "call(276, 77, os.pipe()[0], os.pipe()[1], 0, 0)",
    "pages of memory in a pipe": "call(278, 75, os.pipe()[1], ctypes.byref((ctypes.c_ulong * 2)()), 0, 0)",
    "which files the host has in memory": "call(27, 232, libc.mmap(None, 4096, 1, 2, 0, 0), 4096, bytes(1))",
    "reads only of what is in memory": "call(327, 286, os.open(os.__file__, os.O_RDONLY), None, 0, 0, 0, 8)",
    "files thrown out of the host's memory": "call(221, 223, os.open(os.__file__, os.O_RDONLY), 0, 0, 4)",
    "memory merged with that of others": "call(28, 233, libc.mmap(None, 4096, 3, 0x22, -1, 0), 4096, 12)",
    "the host's load and free memory": "call(99, 179, ctypes.create_string_buffer(200))",
    "the host's free disk": "call(137, 43, b'/', ctypes.create_string_buffer(200))",
    "all disks written": "call(162, 81)",
    "messages of the kernel": "call(103, 116, 10, None, 0)",
    "another namespace": "call(272, 97, 0x40000000)",
    "a filter of its own": "call(317, 277, 2, 0, None)",
    "another personality": "call(135, 92, 0xffffffff)",
    "a timer of the kernel": "call(222, 107, 0, None, ctypes.byref(ctypes.c_int()))",
    "a descriptor table of the processor": "call(154, 1000, 0, None, 0)",
    "the name of the host changed": "call(170, 161, b'x', 1)",
    "BPF": "call(321, 280, 0, None, 0)",
    "performance counters": "call(298, 241, ctypes.create_string_buffer(128), 0, -1, -1, 0)",
    "a call of the other table": "call(0x40000000 + 39, 1000)",
    "a call without a filter": "call(443, 443, 0)",
}

SOCKETS = {
    "a datagram pair": "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "a packet pair": "socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)",
    "a pair of TIPC": "socket.socketpair(30, socket.SOCK_STREAM)",
    "an address for a pair": "socket.socketpair()[0].bind('\\0x')",
    "a pair that listens": "socket.socketpair()[0].listen()",
    "a pair that connects": "socket.socketpair()[0].connect('\\0x')",
    "a file over a pair": "socket.socketpair()[0].sendmsg([b'x'], [(1, 1, array.array('i', [1]))])",
    "a larger buffer": "socket.socketpair()[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)",
    **{
        f"a socket of family {family}": f"socket.socket({family}, {kind})"
        for family, kind in ((1, 1), (1, 2), (2, 1), (2, 2), (10, 1), (16, 3), (17, 3), (38, 5), (40, 1), (44, 3))
    },
}
"""Families: 1 Unix, 2 and 10 the internet, 16 netlink, 17 packets, 38 ciphers of the kernel, 40 VSOCK, 44 XDP."""


def test_no_call_gets_beyond_the_walls(sandbox: Sandbox) -> None:
    source = "".join(
        f"try:\n    got({what!r}, {attack})\nexcept OSError:\n    pass\n" for what, attack in CALLS.items()
    )
    outcome = run(sandbox, source)
    assert (outcome.status, outcome.stdout) == ("ok", "")


def test_no_socket_has_an_address_or_sends_files(sandbox: Sandbox) -> None:
    source = "".join(
        f"try:\n    {attack}\n    print({what!r})\nexcept PermissionError:\n    pass\n"
        for what, attack in SOCKETS.items()
    )
    outcome = run(sandbox, source)
    assert (outcome.status, outcome.stdout) == ("ok", "")


def test_the_calls_of_another_processor_end_the_program(sandbox: Sandbox) -> None:
    """`int 0x80` has the numbers of 32 bits, which the filter does not know."""
    if platform.machine() != "x86_64":
        pytest.skip("there is no such instruction")
    source = """
        code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        code.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20 (getpid); int 0x80; ret
        at = ctypes.addressof(ctypes.c_char.from_buffer(code))
        print(ctypes.CFUNCTYPE(ctypes.c_int)(at)())
        """
    outcome = run(sandbox, source)
    assert outcome.status in ("killed", "wrong")
    assert outcome.stdout == ""


def test_what_programs_use_of_the_standard_library_works(sandbox: Sandbox) -> None:
    source = """
        import asyncio, concurrent.futures, fcntl, select, selectors, shutil, signal, tempfile, threading
        async def two():
            loop, event = asyncio.get_running_loop(), asyncio.Event()
            loop.call_soon_threadsafe(event.set)
            await asyncio.wait_for(event.wait(), 1)
            return await asyncio.to_thread(lambda: 2)
        print(asyncio.run(two()))
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            print(sum(pool.map(lambda x: x * x, range(4))))
        with tempfile.NamedTemporaryFile("w+") as file, tempfile.TemporaryDirectory() as directory:
            file.write("text")
            file.flush()
            os.fsync(file)
            shutil.copy2(file.name, directory + "/copy")
            shutil.move(directory + "/copy", directory + "/moved")
            print(open(directory + "/moved").read(), len(os.listdir(directory)))
        one, other = socket.socketpair()
        one.sendall(b"x")
        print(other.recv(1), select.select([one], [], [], 0)[0], os.isatty(1))
        signal.signal(signal.SIGALRM, lambda *_: print("alarm"))
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        signal.pause()
        with mmap.mmap(-1, 8192) as memory:
            memory.madvise(mmap.MADV_DONTNEED)
        print(len(os.urandom(4)), os.cpu_count() >= 1, len(os.times()), os.stat("/").st_uid >= 0)
        """
    expected = "2 14 text 1 b'x' [] False alarm 4 True 5 True"
    outcome = run(sandbox, source)
    assert (outcome.stdout.split(), outcome.stderr) == (expected.split(), "")


def test_memory_pinned_in_pipes_stays_within_the_limit(walls: Mechanism) -> None:
    """A pipe holds a page of 4 KiB, and with it the huge page that it is of, whose address space is given back."""
    source = """
        HUGE, held = 2 << 20, []
        try:
            for _ in range(5):
                held.append(os.pipe())
                for _ in range(16):
                    memory = mmap.mmap(-1, 2 * HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
                    memory.madvise(mmap.MADV_HUGEPAGE)
                    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
                    at += -at % HUGE
                    ctypes.memset(at, 1, HUGE)
                    if call(278, 75, held[-1][1], ctypes.byref((ctypes.c_ulong * 2)(at, 4096)), 1, 1) is None:
                        raise OSError
                    print("2 MiB", flush=True)
        except OSError:
            pass
        """
    with Sandbox(SandboxLimits(memory_mib=128), mechanism=walls) as box:
        assert run(box, source).stdout == ""


def test_the_kernel_keeps_few_signals_and_nothing_locked_for_a_program(sandbox: Sandbox) -> None:
    source = """
        import resource
        for kind in (resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE, resource.RLIMIT_NICE, resource.RLIMIT_RTPRIO):
            print(resource.getrlimit(kind)[1])
        print(resource.getrlimit(resource.RLIMIT_SIGPENDING)[1] < 2000)
        """
    assert run(sandbox, source).stdout.split() == ["0"] * 4 + ["True"]


def test_databases_in_files_work_without_locks_of_the_kernel(sandbox: Sandbox) -> None:
    pytest.importorskip("sqlite3")
    source = """
        import sqlite3
        for _ in range(2):
            with sqlite3.connect("x.db") as db:
                db.execute("create table if not exists t (x)")
                db.execute("insert into t values (1)")
                print(db.execute("select count(*) from t").fetchone()[0])
            db.close()
        """
    assert run(sandbox, source).stdout.split() == ["1", "2"]


def test_names_of_the_host_and_of_the_project_are_not_to_be_found(sandbox: Sandbox) -> None:
    """All memory of the interpreter is searched: objects, what was freed, arguments. Needles are written backwards."""
    names = (str(Path(mas.__file__).parents[1]), socket.gethostname())
    project, host = (name.encode()[::-1] for name in names)
    source = f"""
        import gc
        reader = os.pipe()
        def pages(begin, end):
            for at in range(begin, end, 4096):
                if call(1, 64, reader[1], ctypes.c_void_p(at), ctypes.c_size_t(4096)) is not None:
                    yield os.read(reader[0], 4096)
        libc.sbrk.restype = ctypes.c_void_p
        top = libc.sbrk(0)
        arguments = ctypes.c_void_p.in_dll(libc, "environ").value & ~0xfff
        arenas = sorted({{id(thing) >> 20 << 20 for thing in gc.get_objects()}})
        spaces = [(top - (8 << 20), top), (arguments - (1 << 17), arguments + (1 << 17))]
        memory = b"".join(b"".join(pages(*space)) for space in spaces + [(at, at + (1 << 20)) for at in arenas])
        known, project, host = (
            bytes(reversed(word)) for word in ({b"margorp.edisni.xobdnas"!r}, {project!r}, {host!r})
        )
        print(os.uname().nodename, known in memory, project in memory, len(host) > 8 and host in memory)
        """
    assert run(sandbox, source).stdout.split() == ["sandbox", "True", "False", "False"]


def test_the_numbers_of_calls_are_those_of_the_kernel() -> None:
    """From the headers of this machine, where they are installed, for x86_64."""
    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    if not header.exists():
        pytest.skip("the headers of the kernel are not installed")
    lines = [line.split() for line in header.read_text().splitlines() if line.startswith("#define __NR_")]
    numbers = {name.removeprefix("__NR_"): int(number) for _, name, number in lines}
    ours = calls.ALLOWED | calls.CONDITIONAL | calls.WITHOUT_EFFECT | calls.FORKS
    assert {name: x86 for name, (x86, _) in ours.items()} == {name: numbers[name] for name in ours}
    assert len({aarch for _, aarch in ours.values()} - {None}) == sum(aarch is not None for _, aarch in ours.values())

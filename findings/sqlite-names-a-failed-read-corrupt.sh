#!/usr/bin/env bash
# SQLite 3.54.1 (apsw 3.54.1.0 of PyPI), on Linux: where the disk fails a read with EIO or ENXIO in the middle of a statement,
# the statement fails with SQLITE_CORRUPT, "database disk image is malformed", though nothing in the file is damaged. Every
# other error of the same read, such as ETIMEDOUT of a network disk, is SQLITE_IOERR, "disk I/O error". Who takes the first
# for lasting damage gives a good file up after a passing fault of the disk: the same statement succeeds once it reads again.
. "$(dirname "$0")/lib/packages.bash"
pip_packages apsw==3.54.1.0
cat >try.py <<'PY'
import ctypes, errno, apsw

RESULT, FILE, BUFFER = ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p
READ = ctypes.CFUNCTYPE(RESULT, FILE, BUFFER, ctypes.c_size_t, use_errno=True)
PREAD = ctypes.CFUNCTYPE(RESULT, FILE, BUFFER, ctypes.c_size_t, ctypes.c_int64, use_errno=True)
apsw.Connection("t.db").execute("CREATE TABLE t (x); INSERT INTO t VALUES ('a'), (hex(zeroblob(100000)))")
print(apsw.sqlite_lib_version())
disk = apsw.VFS("disk", "unix")
for number in errno.EIO, errno.ENXIO, errno.ETIMEDOUT, errno.ESTALE:
    def fail(*_):
        ctypes.set_errno(number)
        return -1

    calls = {"read": READ(fail), "pread": PREAD(fail), "pread64": PREAD(fail)}
    db = apsw.Connection("t.db")
    rows = db.execute("SELECT length(x), x FROM t")
    assert next(rows) == (1, "a")
    for name, call in calls.items():
        disk.xSetSystemCall(name, ctypes.cast(call, ctypes.c_void_p).value)
    try:
        next(rows)
    except apsw.Error as error:
        print(errno.errorcode[number], error.result, error)
    for name in calls:
        disk.xSetSystemCall(name, 0)
    print("then", [length for length, _ in db.execute("SELECT length(x), x FROM t")])
    db.close()
PY
venv/bin/python try.py | expect '3.54.1
EIO 11 database disk image is malformed
then [1, 200000]
ENXIO 11 database disk image is malformed
then [1, 200000]
ETIMEDOUT 10 disk I/O error
then [1, 200000]
ESTALE 10 disk I/O error
then [1, 200000]'

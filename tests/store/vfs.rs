//! A SQLite VFS that forwards everything to the platform's own and fails on demand.
//!
//! Only what SQLite itself writes and flushes goes through it; the lock file, the rewrite of the log
//! and the ballast are the store's own files.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::size_of;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, Once};

use rusqlite::ffi::{self, sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs};

static LOG_FLUSHES: AtomicU32 = AtomicU32::new(0);
static LOG_FLUSHES_TO_FAIL: AtomicU32 = AtomicU32::new(0);
static DATABASE_FLUSHES_TO_FAIL: AtomicU32 = AtomicU32::new(0);
static OPENS: AtomicU32 = AtomicU32::new(0);
static OPEN_FILES: AtomicU32 = AtomicU32::new(0);
static OPENS_FAIL: AtomicBool = AtomicBool::new(false);
static DISK_FULL: AtomicBool = AtomicBool::new(false);
static DATABASE_FULL: AtomicBool = AtomicBool::new(false);
static WRITES_FAIL: AtomicBool = AtomicBool::new(false);
/// Set by a failed flush of the database until every descriptor of it is closed.
static TAINTED: AtomicBool = AtomicBool::new(false);
static TOUCHED: AtomicBool = AtomicBool::new(false);
static GATE: Mutex<Held> = Mutex::new(Held { shut: false, waiting: false });
static GATE_MOVED: Condvar = Condvar::new();

struct Held {
    shut: bool,
    waiting: bool,
}

/// Ends every fault and forgets what was counted about failures.
pub(crate) fn heal() {
    LOG_FLUSHES_TO_FAIL.store(0, SeqCst);
    DATABASE_FLUSHES_TO_FAIL.store(0, SeqCst);
    OPENS_FAIL.store(false, SeqCst);
    DISK_FULL.store(false, SeqCst);
    DATABASE_FULL.store(false, SeqCst);
    WRITES_FAIL.store(false, SeqCst);
    TAINTED.store(false, SeqCst);
    TOUCHED.store(false, SeqCst);
}

/// The next so many flushes of a log fail, after its bytes were written.
pub(crate) fn fail_log_flushes(times: u32) {
    LOG_FLUSHES_TO_FAIL.store(times, SeqCst);
}

/// The next so many flushes of a database file fail.
pub(crate) fn fail_database_flushes(times: u32) {
    DATABASE_FLUSHES_TO_FAIL.store(times, SeqCst);
}

/// Whether a database can be opened.
pub(crate) fn fail_opens(fail: bool) {
    OPENS_FAIL.store(fail, SeqCst);
}

/// Whether every write finds the disk full.
pub(crate) fn fill_disk(full: bool) {
    DISK_FULL.store(full, SeqCst);
}

/// Whether every write to a database file, and none to its log, finds the disk full.
#[cfg(debug_assertions)]
pub(crate) fn fill_disk_of_database(full: bool) {
    DATABASE_FULL.store(full, SeqCst);
}

/// Whether every write meets an I/O error, as over a quota.
pub(crate) fn fail_writes(fail: bool) {
    WRITES_FAIL.store(fail, SeqCst);
}

/// How often a log was flushed.
pub(crate) fn log_flushes() -> u32 {
    LOG_FLUSHES.load(SeqCst)
}

/// How often a database was opened.
pub(crate) fn opens() -> u32 {
    OPENS.load(SeqCst)
}

/// Waits until no database is open.
pub(crate) fn wait_until_closed() {
    let open = |_: &mut Held| OPEN_FILES.load(SeqCst) > 0;
    drop(GATE_MOVED.wait_while(GATE.lock().unwrap(), open).unwrap());
}

/// Whether a database was written through descriptors that had seen its flush fail.
pub(crate) fn touched_after_a_failed_flush() -> bool {
    TOUCHED.load(SeqCst)
}

/// Holds every flush of a log until it is opened.
pub(crate) struct Gate;

pub(crate) fn hold_log_flushes() -> Gate {
    *GATE.lock().unwrap() = Held { shut: true, waiting: false };
    Gate
}

impl Gate {
    /// Waits until a flush stands at the gate.
    pub(crate) fn wait_for_a_flush(&self) {
        drop(GATE_MOVED.wait_while(GATE.lock().unwrap(), |gate| !gate.waiting).unwrap());
    }

    /// Lets it and all others pass.
    pub(crate) fn open(self) {}
}

impl Drop for Gate {
    fn drop(&mut self) {
        GATE.lock().unwrap().shut = false;
        GATE_MOVED.notify_all();
    }
}

fn pass_gate() {
    let mut gate = GATE.lock().unwrap();
    gate.waiting = true;
    GATE_MOVED.notify_all();
    drop(GATE_MOVED.wait_while(gate, |gate| gate.shut).unwrap());
}

fn take_one(counter: &AtomicU32) -> bool {
    counter.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok()
}

/// What stands in front of the real file's own memory.
#[repr(C)]
struct File {
    base: sqlite3_file,
    kind: c_int,
}

static REAL: AtomicPtr<sqlite3_vfs> = AtomicPtr::new(std::ptr::null_mut());

/// Makes this VFS the process's default, once.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the library is initialised first; the default VFS lives as long as the process, and
        // so does the leaked copy of it that is registered.
        unsafe {
            assert_eq!(ffi::sqlite3_initialize(), ffi::SQLITE_OK);
            let real = ffi::sqlite3_vfs_find(std::ptr::null());
            REAL.store(real, SeqCst);
            let mut shim: Box<sqlite3_vfs> = Box::new(std::ptr::read(real));
            shim.zName = c"faults".as_ptr();
            shim.pNext = std::ptr::null_mut();
            shim.szOsFile += size_of::<File>() as c_int;
            shim.xOpen = Some(open);
            assert_eq!(ffi::sqlite3_vfs_register(Box::leak(shim), 1), ffi::SQLITE_OK);
        }
    });
}

// SAFETY of all callbacks below: SQLite calls them with the file it had opened by `open`, whose memory
// is `szOsFile` bytes: ours first, the real VFS's after it. `size_of::<File>()` keeps its alignment.

fn real(file: *mut sqlite3_file) -> *mut sqlite3_file {
    // SAFETY: see above; the real file lies behind ours in the same allocation.
    unsafe { file.cast::<u8>().add(size_of::<File>()).cast() }
}

fn is(file: *mut sqlite3_file, kind: c_int) -> bool {
    // SAFETY: `open` has initialised ours.
    unsafe { (*file.cast::<File>()).kind & kind != 0 }
}

unsafe extern "C" fn open(
    _vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    let database = flags & ffi::SQLITE_OPEN_MAIN_DB != 0;
    // SAFETY: `file` has room for both parts; a file without methods is never closed by SQLite.
    unsafe {
        (*file).pMethods = std::ptr::null();
        if database && OPENS_FAIL.load(SeqCst) {
            return ffi::SQLITE_CANTOPEN;
        }
        let vfs = REAL.load(SeqCst);
        let result = (*vfs).xOpen.unwrap()(vfs, name, real(file), flags, out);
        if (*real(file)).pMethods.is_null() {
            return result;
        }
        (*file.cast::<File>()).kind = flags;
        (*file).pMethods = &METHODS;
        if database {
            OPENS.fetch_add(1, SeqCst);
            OPEN_FILES.fetch_add(1, SeqCst);
        }
        result
    }
}

/// Calls the real file's method.
macro_rules! forward {
    ($file:ident . $method:ident ( $($argument:expr),* )) => {{
        let real = real($file);
        (*(*real).pMethods).$method.unwrap()(real $(, $argument)*)
    }};
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    if is(file, ffi::SQLITE_OPEN_MAIN_DB) && OPEN_FILES.fetch_sub(1, SeqCst) == 1 {
        TAINTED.store(false, SeqCst);
        drop(GATE.lock().unwrap());
        GATE_MOVED.notify_all();
    }
    // SAFETY: see above.
    unsafe { forward!(file.xClose()) }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    data: *const c_void,
    bytes: c_int,
    at: sqlite3_int64,
) -> c_int {
    let database = is(file, ffi::SQLITE_OPEN_MAIN_DB);
    if DISK_FULL.load(SeqCst) || database && DATABASE_FULL.load(SeqCst) {
        return ffi::SQLITE_FULL;
    }
    if WRITES_FAIL.load(SeqCst) {
        return ffi::SQLITE_IOERR_WRITE;
    }
    if database && TAINTED.load(SeqCst) {
        TOUCHED.store(true, SeqCst);
    }
    // SAFETY: see above.
    unsafe { forward!(file.xWrite(data, bytes, at)) }
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    if is(file, ffi::SQLITE_OPEN_WAL) {
        LOG_FLUSHES.fetch_add(1, SeqCst);
        pass_gate();
        if take_one(&LOG_FLUSHES_TO_FAIL) {
            return ffi::SQLITE_IOERR_FSYNC;
        }
    } else if is(file, ffi::SQLITE_OPEN_MAIN_DB) && take_one(&DATABASE_FLUSHES_TO_FAIL) {
        TAINTED.store(true, SeqCst);
        return ffi::SQLITE_IOERR_FSYNC;
    }
    // SAFETY: see above.
    unsafe { forward!(file.xSync(flags)) }
}

/// A callback that only forwards.
macro_rules! plain {
    ($name:ident, $method:ident ( $($argument:ident : $kind:ty),* ) $(-> $result:ty)?) => {
        unsafe extern "C" fn $name(file: *mut sqlite3_file $(, $argument: $kind)*) $(-> $result)? {
            // SAFETY: see above.
            unsafe { forward!(file.$method($($argument),*)) }
        }
    };
}

plain!(read, xRead(data: *mut c_void, bytes: c_int, at: sqlite3_int64) -> c_int);
plain!(truncate, xTruncate(size: sqlite3_int64) -> c_int);
plain!(file_size, xFileSize(size: *mut sqlite3_int64) -> c_int);
plain!(lock, xLock(level: c_int) -> c_int);
plain!(unlock, xUnlock(level: c_int) -> c_int);
plain!(check_lock, xCheckReservedLock(out: *mut c_int) -> c_int);
plain!(control, xFileControl(op: c_int, argument: *mut c_void) -> c_int);
plain!(sector, xSectorSize() -> c_int);
plain!(traits, xDeviceCharacteristics() -> c_int);
plain!(shm_map, xShmMap(page: c_int, size: c_int, extend: c_int, out: *mut *mut c_void) -> c_int);
plain!(shm_lock, xShmLock(offset: c_int, count: c_int, flags: c_int) -> c_int);
plain!(shm_barrier, xShmBarrier());
plain!(shm_unmap, xShmUnmap(delete: c_int) -> c_int);

/// Version 2: all but memory mapping, which the store does not use.
static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_lock),
    xFileControl: Some(control),
    xSectorSize: Some(sector),
    xDeviceCharacteristics: Some(traits),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

const _: () = assert!(size_of::<File>().is_multiple_of(align_of::<*const CStr>()));

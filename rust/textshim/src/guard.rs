//! What every export shares: status codes, owned buffers, and the guard that turns a panic into a status.
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

/// How a call ended. Every status but TS_OK and TS_TOO_SMALL leaves a message for a person in the error buffer.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ts_status {
    TS_OK = 0,
    /// The bytes handed in are wrong: not UTF-8, not JSON, a vocabulary that contradicts itself, a template that fails.
    TS_INVALID = 1,
    /// Understood, not implemented: an unknown pre-tokenizer, a tokenizer model we do not read.
    TS_UNSUPPORTED = 2,
    /// A step, size or time budget was used up.
    TS_LIMIT = 3,
    /// The template called raise_exception; the message is the template's own.
    TS_RAISED = 4,
    /// The caller's array is too short; nothing was written.
    TS_TOO_SMALL = 5,
    /// A fault of ours, caught at the boundary.
    TS_PANIC = 6,
}

/// Bytes owned by this library; release with ts_buf_free.
#[repr(C)]
pub struct ts_buf {
    pub data: *mut u8,
    pub len: usize,
    pub cap: usize,
}

pub struct Failure {
    pub status: ts_status,
    pub message: String,
}
pub type Outcome<T> = Result<T, Failure>;

pub fn invalid(message: impl Into<String>) -> Failure {
    Failure { status: ts_status::TS_INVALID, message: message.into() }
}
pub fn unsupported(message: impl Into<String>) -> Failure {
    Failure { status: ts_status::TS_UNSUPPORTED, message: message.into() }
}
pub fn limit(message: impl Into<String>) -> Failure {
    Failure { status: ts_status::TS_LIMIT, message: message.into() }
}

/// Stores `bytes` in `buf`, which must be empty or fresh.
pub unsafe fn put(buf: *mut ts_buf, bytes: Vec<u8>) {
    if buf.is_null() {
        return;
    }
    let mut bytes = std::mem::ManuallyDrop::new(bytes);
    *buf = ts_buf { data: bytes.as_mut_ptr(), len: bytes.len(), cap: bytes.capacity() };
}

/// Runs one export: a failure or a panic becomes a status and a message, nothing unwinds into the caller.
pub unsafe fn guard(err: *mut ts_buf, body: impl FnOnce() -> Outcome<ts_status>) -> ts_status {
    // The default hook prints to stderr from inside a server; the message reaches the caller anyway.
    static QUIET: Once = Once::new();
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => status,
        Ok(Err(failure)) => {
            put(err, failure.message.into_bytes());
            failure.status
        }
        Err(payload) => {
            put(err, panic_text(&*payload).into_bytes());
            ts_status::TS_PANIC
        }
    }
}

pub fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| s.to_string());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    format!("panic in the text library: {}", text.unwrap_or_default())
}

/// Drops what a handle owns; a panic in a destructor stays here.
pub unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(handle))));
    }
}

pub unsafe fn slice<'a, T>(data: *const T, len: usize) -> &'a [T] {
    if len == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, len)
    }
}

pub unsafe fn text<'a>(data: *const u8, len: usize, what: &str) -> Outcome<&'a str> {
    std::str::from_utf8(slice(data, len))
        .map_err(|e| invalid(format!("{what} is not valid UTF-8 (first bad byte at offset {})", e.valid_up_to())))
}

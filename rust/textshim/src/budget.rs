//! What one render may use. minijinja's fuel bounds the work; this bounds output and time, and is asked wherever the
//! template writes or calls out of the engine.
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use minijinja::{Error, ErrorKind};

#[derive(Clone, Copy)]
struct Budget {
    output_bytes_max: usize,
    deadline: Option<Instant>,
    now: (i64, i32),
}

thread_local! {
    static CURRENT: Cell<Budget> = const { Cell::new(Budget { output_bytes_max: 0, deadline: None, now: (0, 0) }) };
    static EXCEEDED: RefCell<Option<String>> = const { RefCell::new(None) };
    static RAISED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Starts the budget of this thread, which renders one template and ends.
pub fn start(output_bytes_max: usize, time_ms_max: u64, unix_seconds: i64, utc_offset_seconds: i32) {
    let deadline = Instant::now().checked_add(Duration::from_millis(time_ms_max));
    CURRENT.set(Budget { output_bytes_max, deadline, now: (unix_seconds, utc_offset_seconds) });
}

/// (seconds since 1970, offset of local time in seconds)
pub fn now() -> (i64, i32) {
    CURRENT.get().now
}

/// Fails once `bytes` exceed the output's maximum or the time is over.
pub fn check(bytes: usize) -> Result<(), Error> {
    let budget = CURRENT.get();
    if bytes > budget.output_bytes_max {
        return Err(exceed(format!("the template writes more than {} bytes", budget.output_bytes_max)));
    }
    if budget.deadline.is_some_and(|deadline| Instant::now() > deadline) {
        return Err(exceed("the template takes longer than allowed".to_string()));
    }
    Ok(())
}

fn exceed(message: String) -> Error {
    EXCEEDED.set(Some(message.clone()));
    Error::new(ErrorKind::InvalidOperation, message)
}

/// What check() refused on this thread, if it did.
pub fn exceeded() -> Option<String> {
    EXCEEDED.take()
}

/// The template's raise_exception.
pub fn raise(message: String) -> Result<String, Error> {
    RAISED.set(Some(message.clone()));
    Err(Error::new(ErrorKind::InvalidOperation, message))
}
pub fn raised() -> Option<String> {
    RAISED.take()
}

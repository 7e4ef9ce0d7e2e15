//! What one render may use. minijinja's fuel bounds the work; this bounds output and time, and is asked wherever the
//! template writes or calls out of the engine. Time is the thread's own on a processor: a crowded machine must not refuse
//! what a quiet one renders.
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use minijinja::{Error, ErrorKind};

#[derive(Clone, Copy)]
struct Budget {
    output_bytes_max: usize,
    /// Before this moment the time cannot be over.
    earliest_end: Option<Instant>,
    time_max: Duration,
    now: (i64, i32),
}

thread_local! {
    static CURRENT: Cell<Budget> = const { Cell::new(Budget { output_bytes_max: 0, earliest_end: None, time_max: Duration::ZERO, now: (0, 0) }) };
    static EXCEEDED: RefCell<Option<String>> = const { RefCell::new(None) };
    static RAISED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Starts the budget of this thread, which renders one template and ends.
pub fn start(output_bytes_max: usize, time_ms_max: u64, unix_seconds: i64, utc_offset_seconds: i32) {
    let time_max = Duration::from_millis(time_ms_max);
    let earliest_end = Instant::now().checked_add(time_max);
    CURRENT.set(Budget { output_bytes_max, earliest_end, time_max, now: (unix_seconds, utc_offset_seconds) });
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
    if budget.earliest_end.is_some_and(|end| Instant::now() > end)
        && processor_time(libc::CLOCK_THREAD_CPUTIME_ID) > budget.time_max
    {
        return Err(exceed("the template takes longer than allowed".to_string()));
    }
    Ok(())
}

/// What a thread has had of a processor by its clock; nothing when the clock is gone with its thread.
pub fn processor_time(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call.
    if unsafe { libc::clock_gettime(clock, &mut time) } != 0 {
        return Duration::ZERO;
    }
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
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

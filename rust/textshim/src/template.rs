//! Chat templates: Jinja as transformers sets it up, without files, environment or clock of its own.
use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicIsize, AtomicU8, Ordering};
use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

use crate::budget;
use crate::guard::{invalid, limit, panic_text, ts_status, Failure, Outcome};
use crate::pyjson::{python_float, tojson};
use crate::strftime::strftime;

const NAME: &str = "chat";
/// Values nest as deep as fuel allows, and dropping or printing one recurses: with the default fuel of 10^6 about
/// 1.2 * 10^5 levels of at most 1 KiB. Reserved, not touched, so an ordinary render costs its few pages.
const STACK_BYTES: usize = 256 << 20;

/// Templates are bounded in size and parse in milliseconds.
const PARSE_TIME: Duration = Duration::from_secs(10);
/// For what ends by its own budget, a little after the time.
const GRACE: Duration = Duration::from_millis(20);
/// How much longer than its processor time a render may take where others use the processors.
const CROWDED_MAX: u32 = 40;

pub struct Limits {
    pub fuel: u64,
    pub output_bytes_max: usize,
    pub time_ms_max: u64,
    pub unix_seconds: i64,
    pub utc_offset_seconds: i32,
}

/// Renders of one template that may be past their time at once; further ones are refused until they end.
const STUCK_MAX: isize = 2;

pub struct Template {
    environment: Arc<Environment<'static>>,
    stuck: Arc<AtomicIsize>,
}

impl Template {
    pub fn parse(source: &str) -> Outcome<Template> {
        let source = without_generation_marks(source);
        let parsed = on_own_stack(PARSE_TIME, &Arc::default(), move || {
            let mut environment = new_environment()?;
            environment.add_template_owned(NAME, source).map_err(|e| invalid(format!("chat template: {}", text(&e))))?;
            Ok(environment)
        })?;
        Ok(Template { environment: Arc::new(parsed), stuck: Arc::default() })
    }

    pub fn render(&self, context: &[u8], limits: Limits) -> Outcome<Vec<u8>> {
        let context = context.to_vec();
        let environment = self.environment.clone();
        let time = Duration::from_millis(limits.time_ms_max);
        on_own_stack(time, &self.stuck, move || {
            budget::start(limits.output_bytes_max, limits.time_ms_max, limits.unix_seconds, limits.utc_offset_seconds);
            let context: Value = serde_json::from_slice(&context).map_err(|e| invalid(format!("template context: {e}")))?;
            let mut environment = Environment::clone(&environment);
            environment.set_fuel(Some(limits.fuel));
            let mut out = Output(Vec::new());
            let template = environment.get_template(NAME).map_err(failure)?;
            let rendered = template.render_captured_to(context, &mut out).map(drop);
            rendered.map_err(failure)?;
            Ok(out.0)
        })
    }
}

fn new_environment() -> Outcome<Environment<'static>> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.map_err(|e| invalid(e.to_string()))?);
    environment.set_unknown_method_callback(call_method);
    environment.remove_global("debug");
    environment.add_filter("tojson", tojson);
    environment.add_filter("trim", trim);
    environment.add_filter("wordcount", |text: &str| text.split(is_python_space).filter(|word| !word.is_empty()).count());
    environment.add_test("iterable", is_iterable);
    environment.add_test("sequence", is_iterable);
    environment.add_test("number", |value: &Value| matches!(value.kind(), ValueKind::Number | ValueKind::Bool));
    environment.set_formatter(format_value);
    environment.add_function("raise_exception", budget::raise);
    environment.add_function("strftime_now", |format: &str| {
        let (unix_seconds, offset) = budget::now();
        strftime(format, unix_seconds, offset)
    });
    Ok(environment)
}

const RUNNING: u8 = 0;
const STUCK: u8 = 1;
const ENDED: u8 = 2;

/// Runs `work` on a thread whose stack we know, so that the caller's may be small, until it has had `time` of a
/// processor, or CROWDED_MAX times as long has passed. Fuel ends all work but one kind: comparing two values whose parts are shared 2^n times is a single step to the engine. Such a
/// thread cannot be stopped; it goes on at idle priority, and only STUCK_MAX of them.
fn on_own_stack<T: Send + 'static>(
    time: Duration,
    stuck: &Arc<AtomicIsize>,
    work: impl FnOnce() -> Outcome<T> + Send + 'static,
) -> Outcome<T> {
    if stuck.load(Ordering::Acquire) >= STUCK_MAX {
        return Err(limit("earlier renders of this template have not ended yet"));
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    let state = Arc::new(AtomicU8::new(RUNNING));
    let (ending, all_stuck) = (state.clone(), stuck.clone());
    let thread = std::thread::Builder::new().name("template".into()).stack_size(STACK_BYTES).spawn(move || {
        let result = catch_unwind(AssertUnwindSafe(work));
        if ending.swap(ENDED, Ordering::AcqRel) == STUCK {
            all_stuck.fetch_sub(1, Ordering::AcqRel);
        }
        let _ = sender.send(result);
    });
    let thread = thread.map_err(|e| limit(format!("no thread for the template: {e}")))?;
    let begin = Instant::now();
    let mut wait = time + GRACE;
    let ended = loop {
        let ended = receiver.recv_timeout(wait);
        let left = time.saturating_sub(processor_time_of(&thread));
        if !matches!(ended, Err(mpsc::RecvTimeoutError::Timeout)) || left.is_zero() || begin.elapsed() > time * CROWDED_MAX {
            break ended;
        }
        wait = left + GRACE;
    };
    match ended {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => Err(Failure { status: ts_status::TS_PANIC, message: panic_text(&*panic) }),
        Err(_) => {
            if state.compare_exchange(RUNNING, STUCK, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                stuck.fetch_add(1, Ordering::AcqRel);
            }
            let idle = libc::sched_param { sched_priority: 0 };
            // SAFETY: the thread is not joined, so its id is valid.
            unsafe { libc::pthread_setschedparam(thread.as_pthread_t(), libc::SCHED_IDLE, &idle) };
            Err(limit("the template takes longer than allowed"))
        }
    }
}

fn processor_time_of(thread: &std::thread::JoinHandle<()>) -> Duration {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: the thread is not joined, so its id is valid; `clock` outlives the call.
    match unsafe { libc::pthread_getcpuclockid(thread.as_pthread_t(), &mut clock) } {
        0 => budget::processor_time(clock),
        _ => Duration::ZERO,
    }
}

fn failure(error: Error) -> Failure {
    if let Some(message) = budget::raised() {
        return Failure { status: ts_status::TS_RAISED, message };
    }
    if let Some(message) = budget::exceeded() {
        return limit(message);
    }
    if error.kind() == ErrorKind::OutOfFuel {
        return limit("the template does more work than allowed");
    }
    invalid(format!("chat template: {}", text(&error)))
}

fn text(error: &Error) -> String {
    format!("{error:#}").chars().take(500).collect()
}

struct Output(Vec<u8>);
impl io::Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        budget::check(self.0.len() + bytes.len()).map_err(io::Error::other)?;
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `{% generation %}` only marks the assistant's text for training: a block that is always taken.
fn without_generation_marks(source: &str) -> String {
    let mut source = source.to_string();
    for (mark, block) in [("generation", "if true"), ("endgeneration", "endif")] {
        if let Ok(tag) = regex::Regex::new(&format!(r"\{{%([-+]?)\s*{mark}\s*([-+]?)%\}}")) {
            source = tag.replace_all(&source, format!("{{%${{1}} {block} ${{2}}%}}")).into_owned();
        }
    }
    source
}

/// What Python's str.strip() drops: Unicode whitespace and the four ASCII separators.
fn is_python_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Of any value's text, as in Jinja2.
fn trim(value: &Value, chars: Option<&str>) -> String {
    let shown;
    let text = match value.as_str() {
        Some(text) => text,
        None => {
            shown = value.to_string();
            &shown
        }
    };
    match chars {
        Some(chars) => text.trim_matches(|c| chars.contains(c)).to_string(),
        None => text.trim_matches(is_python_space).to_string(),
    }
}

/// None is not iterable in Python; strings, mappings and what is undefined are, and they count as sequences too.
fn is_iterable(value: &Value) -> bool {
    use ValueKind::{Iterable, Map, Seq, String, Undefined};
    matches!(value.kind(), Iterable | Map | Seq | String | Undefined)
}

/// Floats print as in Python.
fn format_value(out: &mut minijinja::Output, state: &mut State, value: &Value) -> Result<(), Error> {
    if value.kind() == ValueKind::Number && !value.is_integer() {
        if let Ok(float) = f64::try_from(value.clone()) {
            return out.write_str(&python_float(float)).map_err(Error::from);
        }
    }
    minijinja::escape_formatter(out, state, value)
}

/// Python's methods; those that minijinja-contrib answers a little differently come first.
fn call_method(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    budget::check(0)?;
    if let (Some(text), true) = (value.as_str(), args.is_empty()) {
        match method {
            "strip" => return Ok(text.trim_matches(is_python_space).into()),
            "lstrip" => return Ok(text.trim_start_matches(is_python_space).into()),
            "rstrip" => return Ok(text.trim_end_matches(is_python_space).into()),
            "split" => return Ok(text.split(is_python_space).filter(|s| !s.is_empty()).map(Value::from).collect()),
            "splitlines" => return Ok(split_lines(text).into_iter().map(Value::from).collect()),
            _ => {}
        }
    }
    if let (Some(text), [prefix]) = (value.as_str(), args) {
        match (method, prefix.as_str()) {
            ("removeprefix", Some(prefix)) => return Ok(text.strip_prefix(prefix).unwrap_or(text).into()),
            ("removesuffix", Some(suffix)) => return Ok(text.strip_suffix(suffix).unwrap_or(text).into()),
            _ => {}
        }
    }
    unknown_method_callback(state, value, method, args)
}

fn split_lines(text: &str) -> Vec<&str> {
    let ends = ['\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}'];
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(ends) {
        lines.push(&rest[..at]);
        let width = if rest[at..].starts_with("\r\n") { 2 } else { rest[at..].chars().next().map_or(1, char::len_utf8) };
        rest = &rest[at + width..];
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

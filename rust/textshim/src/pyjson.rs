//! `tojson` as chat templates expect it: Python's json.dumps(ensure_ascii=False), to the byte.
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};

use crate::budget;

/// Deeper values are refused; JSON that reaches us is at most this deep as well.
const DEPTH_MAX: usize = 128;

struct Style {
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
    ascii: bool,
}

/// The filter, with the keyword arguments of transformers' version.
pub fn tojson(value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let indent = match kwargs.get::<Option<Value>>("indent")? {
        Some(v) if v.is_none() => None,
        Some(v) => Some(match v.as_str() {
            Some(text) => text.to_string(),
            None => " ".repeat(v.as_usize().unwrap_or(0).min(64)),
        }),
        None => None,
    };
    let separators: Option<Vec<String>> = kwargs.get("separators")?;
    let (mut item, mut key) = (if indent.is_some() { "," } else { ", " }.to_string(), ": ".to_string());
    if let Some([i, k]) = separators.as_deref() {
        (item, key) = (i.clone(), k.clone());
    }
    let style = Style {
        indent,
        item_separator: item,
        key_separator: key,
        sort_keys: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        ascii: kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
    };
    kwargs.assert_all_used()?;
    let mut out = String::new();
    write(value, &style, 0, &mut out)?;
    Ok(Value::from_safe_string(out))
}

fn fail(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

fn write(value: &Value, style: &Style, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > DEPTH_MAX {
        return Err(fail("tojson: the value is nested too deeply"));
    }
    budget::check(out.len())?;
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => write_string(value.as_str().unwrap_or_default(), style.ascii, out),
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.checked().collect::<Result<_, _>>()?;
            write_block(out, style, depth, ('[', ']'), items.len(), &mut |i, out| write(&items[i], style, depth + 1, out))?;
        }
        ValueKind::Map => write_map(value, style, depth, out)?,
        kind => return Err(fail(format!("Object of type {kind} is not JSON serializable"))),
    }
    Ok(())
}

fn write_map(value: &Value, style: &Style, depth: usize, out: &mut String) -> Result<(), Error> {
    let mut pairs: Vec<(String, Value)> = Vec::new();
    for key in value.try_iter()?.checked() {
        let key = key?;
        let name = match key.kind() {
            ValueKind::String => key.as_str().unwrap_or_default().to_string(),
            ValueKind::Number => number(&key),
            ValueKind::Bool => if key.is_true() { "true" } else { "false" }.to_string(),
            ValueKind::None => "null".to_string(),
            kind => return Err(fail(format!("keys must be str, int, float, bool or None, not {kind}"))),
        };
        pairs.push((name, value.get_item(&key)?));
    }
    if style.sort_keys {
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
    }
    write_block(out, style, depth, ('{', '}'), pairs.len(), &mut |i, out| {
        write_string(&pairs[i].0, style.ascii, out);
        out.push_str(&style.key_separator);
        write(&pairs[i].1, style, depth + 1, out)
    })
}

type Item<'a> = &'a mut dyn FnMut(usize, &mut String) -> Result<(), Error>;

fn write_block(out: &mut String, style: &Style, depth: usize, ends: (char, char), count: usize, item: Item) -> Result<(), Error> {
    let line = |out: &mut String, depth: usize| {
        if let Some(indent) = style.indent.as_ref().filter(|_| count > 0) {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    };
    out.push(ends.0);
    for i in 0..count {
        if i > 0 {
            out.push_str(&style.item_separator);
        }
        line(out, depth + 1);
        item(i, out)?;
    }
    line(out, depth);
    out.push(ends.1);
    Ok(())
}

fn write_string(text: &str, ascii: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' || (ascii && c > '\u{7e}') => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn number(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(float) if !value.is_integer() => python_float(float),
        _ => value.to_string(),
    }
}

/// Python's repr of a float: the shortest digits that read back, an exponent below 1e-4 and from 1e16 on.
pub fn python_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_string();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_string();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{value}");
    if plain.contains('.') {
        plain
    } else {
        plain + ".0"
    }
}

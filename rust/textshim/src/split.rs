//! Pre-tokenizers: a text is cut into words before merging. Every step is a regular expression without look-around,
//! matched by finite automata, so a run of any length takes linear time and no stack.
use regex::Regex;

use crate::guard::{unsupported, Outcome};

/// The one look-ahead that published patterns use: whitespace, but not its last character before a word. Dropped from
/// the expression and done by hand.
const TAIL: &str = r"\s+(?!\S)";

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
// Words break where a lower-case letter precedes an upper-case one.
const TEKKEN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
// The cased letters of the Unicode version that the model was trained with, by number: editors fold some of them.
const DEEPSEEK_LETTERS: &str = concat!(
    r"\s?[A-Za-z\x{00B5}\x{00C0}-\x{00D6}\x{00D8}-\x{00F6}\x{00F8}-\x{01BA}\x{01BC}-\x{01BF}\x{01C4}-\x{0293}",
    r"\x{0295}-\x{02AF}\x{0370}-\x{0373}\x{0376}\x{0377}\x{037B}-\x{037D}\x{037F}\x{0386}\x{0388}-\x{038A}",
    r"\x{038C}\x{038E}-\x{03A1}\x{03A3}-\x{03F5}\x{03F7}-\x{0481}\x{048A}-\x{052F}\x{0531}-\x{0556}",
    r"\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}",
    r"\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}",
    r"\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}",
    r"\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}",
    r"\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}",
    r"\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}",
    r"\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}",
    r"\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}",
    r"\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}",
    r"\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+"
);
const DEEPSEEK_MARKS: &str = r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+";
const DEEPSEEK_HAN: &str = r"[\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+";
const DEEPSEEK_V3: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// The pre-tokenizers a GGUF file may name, for messages.
pub const KINDS: &str = "default, deepseek-coder, deepseek-llm, deepseek-r1-qwen, deepseek-v3, gpt-2, llama-bpe, qwen2, refact, smollm, tekken";

enum Step {
    /// Matches and the gaps between them become pieces.
    Pattern { regex: Regex, tail: bool, keeps_newline_runs: bool },
    /// Every numeric character is a piece of its own.
    EachDigit,
    /// Runs of numeric characters are pieces.
    DigitRuns,
}

#[derive(Default)]
pub struct Splitter {
    steps: Vec<Step>,
}

impl Splitter {
    /// By the name in `tokenizer.ggml.pre`. The second value: does the model compose its text (NFC) first?
    pub fn named(pre: &str) -> Outcome<(Splitter, bool)> {
        let mut splitter = Splitter::default();
        let patterns: &[&str] = match pre {
            // refact is what Granite's files say.
            "smollm" | "refact" => {
                splitter.each_digit();
                &[GPT2]
            }
            "gpt-2" | "gpt2" => &[GPT2],
            "llama-bpe" | "llama3" | "llama-v3" => &[LLAMA3],
            "qwen2" | "deepseek-r1-qwen" => &[QWEN2],
            "tekken" => &[TEKKEN],
            "default" => &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"],
            "deepseek-llm" => &[r"[\r\n]", DEEPSEEK_LETTERS, DEEPSEEK_MARKS, r"\s+$", DEEPSEEK_HAN, r"\p{N}+"],
            "deepseek-coder" => &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_HAN, r"\p{N}"],
            "deepseek-v3" => &[r"\p{N}{1,3}", r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+", DEEPSEEK_V3],
            other => {
                return Err(unsupported(format!("pre-tokenizer \"{other}\" is not supported; supported are: {KINDS}")));
            }
        };
        for pattern in patterns {
            splitter.pattern(pattern).map_err(|e| unsupported(format!("pre-tokenizer \"{pre}\": {e}")))?;
        }
        Ok((splitter, pre == "qwen2"))
    }

    pub fn gpt2(&mut self) -> Result<(), String> {
        self.pattern(GPT2)
    }
    pub fn each_digit(&mut self) {
        self.steps.push(Step::EachDigit);
    }
    pub fn digit_runs(&mut self) {
        self.steps.push(Step::DigitRuns);
    }

    /// Adds a step; fails when the expression needs more than finite automata.
    pub fn pattern(&mut self, pattern: &str) -> Result<(), String> {
        if has_possessive(pattern) {
            return Err("possessive quantifiers are not supported".to_string());
        }
        let tail = pattern.contains(TAIL);
        let plain = if !tail {
            pattern.to_string()
        } else if pattern.ends_with(r"\s+(?!\S)|\s+") {
            pattern.replace(r"\s+(?!\S)|", "")
        } else if pattern.ends_with(TAIL) {
            pattern.replace(TAIL, r"\s+")
        } else {
            return Err("this use of look-ahead is not supported".to_string());
        };
        // Written as escapes or as the characters themselves.
        let keeps_newline_runs = plain.contains(r"\s*[\r\n]") || plain.contains("\\s*[\r\n]");
        let regex = Regex::new(&plain).map_err(|e| e.to_string())?;
        if regex.is_match("") {
            return Err("the pattern matches nothing at all".to_string());
        }
        self.steps.push(Step::Pattern { regex, tail, keeps_newline_runs });
        Ok(())
    }

    /// Calls `visit` with each word of `text`, in order; the words joined are the text.
    pub fn split(&self, text: &str, visit: &mut dyn FnMut(&str)) {
        self.run(0, text, visit);
    }

    // Recursion over the steps, at most six deep.
    fn run(&self, step: usize, piece: &str, visit: &mut dyn FnMut(&str)) {
        if piece.is_empty() {
            return;
        }
        match self.steps.get(step) {
            None => visit(piece),
            Some(Step::Pattern { regex, tail, keeps_newline_runs }) => {
                let mut at = 0;
                while let Some(found) = regex.find_at(piece, at) {
                    let mut end = found.end();
                    if *tail {
                        end = without_last_blank(piece, found.start(), end, *keeps_newline_runs);
                    }
                    if end == at {
                        break; // an empty match: nothing more to cut
                    }
                    self.run(step + 1, &piece[at..found.start()], visit);
                    self.run(step + 1, &piece[found.start()..end], visit);
                    at = end;
                }
                self.run(step + 1, &piece[at..], visit);
            }
            Some(Step::EachDigit) => self.cut_digits(step, piece, true, visit),
            Some(Step::DigitRuns) => self.cut_digits(step, piece, false, visit),
        }
    }

    fn cut_digits(&self, step: usize, piece: &str, each: bool, visit: &mut dyn FnMut(&str)) {
        let mut start = 0;
        let mut in_digits = false;
        for (at, c) in piece.char_indices() {
            let digit = c.is_numeric();
            if at > start && (digit != in_digits || (digit && each)) {
                self.run(step + 1, &piece[start..at], visit);
                start = at;
            }
            in_digits = digit;
        }
        self.run(step + 1, &piece[start..], visit);
    }
}

/// A possessive quantifier (`?+`, `++`, `*+`, `{2}+`) would read as a repeated repetition here and change its meaning
/// silently.
fn has_possessive(pattern: &str) -> bool {
    let bytes = pattern.as_bytes();
    let (mut at, mut in_class, mut quantified) = (0, false, false);
    while at < bytes.len() {
        let byte = bytes[at];
        if byte == b'+' && quantified {
            return true;
        }
        // The quantifier that this byte ends, if any: "(?" is a group, `\p{L}` is a class.
        quantified = !in_class && matches!(byte, b'?' | b'*' | b'+' | b'}') && (at == 0 || bytes[at - 1] != b'(');
        match byte {
            b'\\' => {
                at += 1;
                if bytes.get(at + 1) == Some(&b'{') {
                    at += bytes[at..].iter().position(|&b| b == b'}').unwrap_or(0);
                }
            }
            b'[' => in_class = true,
            b']' => in_class = false,
            _ => {}
        }
        at += 1;
    }
    false
}

/// `\s+(?!\S)` by hand: a run of whitespace before a word gives its last character to the word. A run that ends a line
/// was matched by `\s*[\r\n]+`, where the pattern has it, and stays whole.
fn without_last_blank(piece: &str, start: usize, end: usize, keeps_newline_runs: bool) -> usize {
    let found = &piece[start..end];
    if end == piece.len() || !found.chars().next_back().is_some_and(char::is_whitespace) {
        return end;
    }
    if keeps_newline_runs && found.ends_with(['\r', '\n']) {
        return end;
    }
    let last = found.chars().next_back().map_or(0, char::len_utf8);
    if found.len() > last && found.chars().all(char::is_whitespace) {
        end - last
    } else {
        end
    }
}

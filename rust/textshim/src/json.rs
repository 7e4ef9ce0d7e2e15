//! A tokenizer from tokenizer.json and tokenizer_config.json. Byte-level and SentencePiece-like pair merging run on our
//! own engines, whose time is bounded for any text; whatever else the file describes runs on the tokenizers library.
use std::collections::HashMap;

use serde_json::Value;

use crate::added::{AddedToken, AddedTokens};
use crate::arrays::{add_merge, by_bytes, byte_alphabet};
use crate::guard::{invalid, Outcome};
use crate::merge::MergeTable;
use crate::split::Splitter;
use crate::table::{byte_of_piece, Kind, Spelling, TokenTable};
use crate::tokenizer::{BytePairs, CharPairs, Engine, Prefix, Tokenizer};

pub fn tokenizer_from_json(json: &[u8], config: &[u8]) -> Outcome<Tokenizer> {
    let document: Value = serde_json::from_slice(json).map_err(|e| invalid(format!("tokenizer.json: {e}")))?;
    let config: Value = match config {
        [] => Value::Null,
        bytes => serde_json::from_slice(bytes).map_err(|e| invalid(format!("tokenizer_config.json: {e}")))?,
    };
    let added = read_added(&document)?;
    let plan = Plan::of(&document);
    let table = read_table(&document, &added, plan.spelling(&document))?;
    let (head, tail) = read_frame(&document);
    let engine = match plan {
        Plan::Bytes(plan) => byte_pairs(&document, &table, plan)?,
        Plan::Chars(plan) => char_pairs(&document, &table, plan)?,
        Plan::Library => library(&document)?,
    };
    let index = table.index();
    let id_of = |name: &str| token_name(&config[name]).and_then(|text| index.get(text.as_bytes()).copied());
    let bos = id_of("bos_token").or(head.first().copied());
    let mut tokenizer = Tokenizer {
        added: AddedTokens::new(added)?,
        engine,
        head,
        tail,
        bos,
        eos: id_of("eos_token"),
        unknown: id_of("unk_token"),
        pad: id_of("pad_token"),
        strips_leading_space: strips_leading_space(&document),
        table,
    };
    apply_flags(&mut tokenizer, &config);
    Ok(tokenizer)
}

fn token_name(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value["content"].as_str())
}

/// add_bos_token and add_eos_token override what the post-processor says about exactly that token.
fn apply_flags(tokenizer: &mut Tokenizer, config: &Value) {
    let sides = [("add_bos_token", tokenizer.bos, &mut tokenizer.head), ("add_eos_token", tokenizer.eos, &mut tokenizer.tail)];
    for (flag, id, side) in sides {
        let Some(id) = id else { continue };
        match config[flag].as_bool() {
            Some(true) if side.is_empty() => side.push(id),
            Some(false) if *side == [id] => side.clear(),
            _ => {}
        }
    }
}

fn read_added(document: &Value) -> Outcome<Vec<AddedToken>> {
    let mut added = Vec::new();
    for entry in document["added_tokens"].as_array().unwrap_or(&Vec::new()) {
        let flag = |name: &str| entry[name].as_bool().unwrap_or(false);
        let (Some(id), Some(text)) = (entry["id"].as_u64(), entry["content"].as_str()) else {
            return Err(invalid("tokenizer.json: an added token lacks id or content"));
        };
        added.push(AddedToken {
            id: check_id(id)?,
            text: text.to_string(),
            control: flag("special") || looks_like_control(text),
            lstrip: flag("lstrip"),
            rstrip: flag("rstrip"),
            single_word: flag("single_word"),
        });
    }
    Ok(added)
}

/// Some files leave "special" unset on the marks of a turn; llama.cpp's converter draws the same line.
fn looks_like_control(text: &str) -> bool {
    (text.starts_with("<|") && text.ends_with("|>")) || (text.starts_with("<\u{ff5c}") && text.ends_with("\u{ff5c}>"))
}

/// The largest published vocabulary has 262144 tokens; a table of ids is allocated up to the largest one.
const ID_MAX: u64 = 1 << 22;

fn check_id(id: u64) -> Outcome<u32> {
    if id >= ID_MAX {
        return Err(invalid(format!("tokenizer.json: token id {id} is not below {ID_MAX}")));
    }
    Ok(id as u32)
}

fn read_table(document: &Value, added: &[AddedToken], spelling: Spelling) -> Outcome<TokenTable> {
    let mut words: Vec<(String, Kind)> = Vec::new();
    let mut set = |id: u32, text: &str, kind: Kind| {
        let id = id as usize;
        if words.len() <= id {
            words.resize(id + 1, (String::new(), Kind::Unused));
        }
        words[id] = (text.to_string(), kind);
    };
    let bytes = document["model"]["byte_fallback"].as_bool().unwrap_or(false);
    match &document["model"]["vocab"] {
        Value::Object(vocab) => {
            for (text, id) in vocab {
                let id = id.as_u64().ok_or_else(|| invalid("tokenizer.json: a token id is not a number"))?;
                let byte = bytes && byte_of_piece(text.as_bytes()).is_some();
                set(check_id(id)?, text, if byte { Kind::Byte } else { Kind::Normal });
            }
        }
        // Unigram models list [piece, score] in the order of ids.
        Value::Array(vocab) => {
            for (id, entry) in vocab.iter().enumerate() {
                let text = entry[0].as_str().ok_or_else(|| invalid("tokenizer.json: a vocabulary entry has no piece"))?;
                set(check_id(id as u64)?, text, Kind::Normal);
            }
        }
        _ => return Err(invalid("tokenizer.json: model.vocab is missing")),
    }
    for token in added {
        set(token.id, &token.text, if token.control { Kind::Control } else { Kind::UserDefined });
    }
    let mut table = TokenTable::default();
    for (text, kind) in &words {
        table.push(text.as_bytes(), *kind, spelling);
    }
    Ok(table)
}

/// The ids that the post-processor puts before and after a single text.
fn read_frame(document: &Value) -> (Vec<u32>, Vec<u32>) {
    let (mut head, mut tail) = (Vec::new(), Vec::new());
    for step in flatten(&document["post_processor"], "processors") {
        match step["type"].as_str() {
            Some("TemplateProcessing") => {
                let mut seen_text = false;
                for item in step["single"].as_array().unwrap_or(&Vec::new()) {
                    let Some(name) = item["SpecialToken"]["id"].as_str() else {
                        seen_text = true;
                        continue;
                    };
                    let none = Vec::new();
                    let ids = step["special_tokens"][name]["ids"].as_array().unwrap_or(&none);
                    let side = if seen_text { &mut tail } else { &mut head };
                    side.extend(ids.iter().filter_map(Value::as_u64).map(|id| id as u32));
                }
            }
            Some("BertProcessing" | "RobertaProcessing") => {
                head.extend(step["cls"][1].as_u64().map(|id| id as u32));
                tail.extend(step["sep"][1].as_u64().map(|id| id as u32));
            }
            _ => {}
        }
    }
    (head, tail)
}

fn strips_leading_space(document: &Value) -> bool {
    flatten(&document["decoder"], "decoders").iter().any(|step| match step["type"].as_str() {
        Some("Strip") => step["content"] == " " && step["start"].as_u64().unwrap_or(0) > 0,
        Some("Metaspace") => metaspace_prefix(step) != Prefix::Never,
        _ => false,
    })
}

fn metaspace_prefix(step: &Value) -> Prefix {
    match (step["prepend_scheme"].as_str(), step["add_prefix_space"].as_bool()) {
        (Some("never"), _) | (None, Some(false)) => Prefix::Never,
        (Some("first"), _) => Prefix::First,
        _ => Prefix::Always,
    }
}

/// A step or a Sequence of steps as a list.
fn flatten<'a>(step: &'a Value, list: &str) -> Vec<&'a Value> {
    match (step, step[list].as_array()) {
        (Value::Null, _) => Vec::new(),
        (_, Some(steps)) if step["type"] == "Sequence" => steps.iter().collect(),
        _ => vec![step],
    }
}

/// Which engine runs the file.
enum Plan {
    Bytes(BytePlan),
    Chars(CharPlan),
    Library,
}
struct BytePlan {
    splitter: Splitter,
    nfc: bool,
    prefix: Prefix,
}
struct CharPlan {
    prefix: Prefix,
    prefix_once: bool,
}

impl Plan {
    fn of(document: &Value) -> Plan {
        let model = &document["model"];
        let is_pairs = model["type"] == "BPE" || (model["type"].is_null() && model["merges"].is_array());
        let affixed = |name: &str| model[name].as_str().is_some_and(|s| !s.is_empty());
        if !is_pairs || affixed("continuing_subword_prefix") || affixed("end_of_word_suffix") || model["dropout"].is_f64() {
            return Plan::Library;
        }
        if let Some(plan) = BytePlan::of(document) {
            return Plan::Bytes(plan);
        }
        CharPlan::of(document).map_or(Plan::Library, Plan::Chars)
    }

    fn spelling(&self, document: &Value) -> Spelling {
        let decoders = flatten(&document["decoder"], "decoders");
        let has = |name: &str| decoders.iter().any(|d| d["type"] == name);
        match self {
            Plan::Bytes(_) => Spelling::ByteLevel,
            Plan::Chars(_) => Spelling::BlanksEverywhere,
            Plan::Library if has("ByteLevel") => Spelling::ByteLevel,
            Plan::Library if has("Metaspace") || has("Replace") => Spelling::BlanksEverywhere,
            Plan::Library => Spelling::Plain,
        }
    }
}

impl BytePlan {
    fn of(document: &Value) -> Option<BytePlan> {
        let mut plan = BytePlan { splitter: Splitter::default(), nfc: false, prefix: Prefix::Never };
        for step in flatten(&document["normalizer"], "normalizers") {
            match step["type"].as_str() {
                Some("NFC") => plan.nfc = true,
                _ => return None,
            }
        }
        let steps = flatten(&document["pre_tokenizer"], "pretokenizers");
        let (last, cuts) = steps.split_last()?;
        for step in cuts {
            plan.add_cut(step)?;
        }
        if last["type"] != "ByteLevel" {
            return None;
        }
        if last["add_prefix_space"].as_bool().unwrap_or(true) {
            if !cuts.is_empty() {
                return None; // each piece would get its own blank
            }
            plan.prefix = Prefix::Always;
        }
        if last["use_regex"].as_bool().unwrap_or(true) {
            plan.splitter.gpt2().ok()?;
        }
        Some(plan)
    }

    fn add_cut(&mut self, step: &Value) -> Option<()> {
        match step["type"].as_str()? {
            "Digits" if step["individual_digits"] == true => self.splitter.each_digit(),
            "Digits" => self.splitter.digit_runs(),
            "Split" => {
                let inverted = step["invert"].as_bool().unwrap_or(false);
                let pattern = step["pattern"]["Regex"].as_str()?;
                // "Removed" and inverted keeps the matches: the same, for a pattern that covers every text.
                match step["behavior"].as_str()? {
                    "Isolated" if !inverted => {}
                    "Removed" if inverted && pattern.ends_with(r"|\s+") => {}
                    _ => return None,
                }
                self.splitter.pattern(pattern).ok()?;
            }
            _ => return None,
        }
        Some(())
    }
}

impl CharPlan {
    fn of(document: &Value) -> Option<CharPlan> {
        let mut plan = CharPlan { prefix: Prefix::Never, prefix_once: false };
        let mut blanks = false;
        for step in flatten(&document["normalizer"], "normalizers") {
            match step["type"].as_str()? {
                "Prepend" if step["prepend"] == "\u{2581}" => plan.prefix = Prefix::Always,
                "Replace" if step["pattern"]["String"] == " " && step["content"] == "\u{2581}" => blanks = true,
                _ => return None,
            }
        }
        for step in flatten(&document["pre_tokenizer"], "pretokenizers") {
            match step["type"].as_str()? {
                "Metaspace" if step["replacement"] == "\u{2581}" && step["split"] == false => {
                    blanks = true;
                    plan.prefix = metaspace_prefix(step);
                    plan.prefix_once = true;
                }
                // After the blanks have been replaced this one finds nothing.
                "Split" if step["pattern"]["String"] == " " && blanks => {}
                _ => return None,
            }
        }
        blanks.then_some(plan)
    }
}

fn read_merges(document: &Value, table: &TokenTable, index: &HashMap<Box<[u8]>, u32>) -> Outcome<MergeTable> {
    let mut merges = MergeTable::default();
    for (rank, entry) in document["model"]["merges"].as_array().unwrap_or(&Vec::new()).iter().enumerate() {
        let (left, right) = match entry.as_str() {
            Some(line) => line.split_once(' ').unwrap_or_default(),
            None => (entry[0].as_str().unwrap_or_default(), entry[1].as_str().unwrap_or_default()),
        };
        let split = std::iter::once((left.as_bytes(), right.as_bytes()));
        add_merge(&mut merges, rank as u32, split, table, index)
            .ok_or_else(|| invalid(format!("tokenizer.json: merge {rank} names tokens that the vocabulary lacks")))?;
    }
    Ok(merges)
}

fn unknown_id(document: &Value, index: &HashMap<Box<[u8]>, u32>) -> Option<u32> {
    document["model"]["unk_token"].as_str().and_then(|text| index.get(text.as_bytes()).copied())
}

fn byte_pairs(document: &Value, table: &TokenTable, plan: BytePlan) -> Outcome<Engine> {
    let mut index = table.index();
    let merges = read_merges(document, table, &index)?;
    let byte_ids = byte_alphabet(&index);
    let unknown = unknown_id(document, &index);
    let whole = document["model"]["ignore_merges"].as_bool().unwrap_or(false);
    let whole_words = if whole { by_bytes(&mut index, table) } else { HashMap::new() };
    let BytePlan { splitter, nfc, prefix } = plan;
    Ok(Engine::BytePairs(Box::new(BytePairs { splitter, nfc, prefix, merges, byte_ids, whole_words, unknown })))
}

fn char_pairs(document: &Value, table: &TokenTable, plan: CharPlan) -> Outcome<Engine> {
    let index = table.index();
    let model = &document["model"];
    let mut byte_ids = [None; 256];
    if model["byte_fallback"].as_bool().unwrap_or(false) {
        for (byte, id) in byte_ids.iter_mut().enumerate() {
            *id = index.get(format!("<0x{byte:02X}>").as_bytes()).copied();
        }
    }
    let mut char_ids = HashMap::new();
    let mut whole_words = HashMap::new();
    for (text, &id) in index.iter().filter(|(_, &id)| matches!(table.kinds[id as usize], Kind::Normal | Kind::UserDefined)) {
        let mut chars = std::str::from_utf8(text).unwrap_or("").chars();
        if let (Some(c), None) = (chars.next(), chars.next()) {
            char_ids.insert(c, id);
        }
        if model["ignore_merges"] == true {
            whole_words.insert(text.clone(), id);
        }
    }
    Ok(Engine::CharPairs(Box::new(CharPairs {
        prefix: plan.prefix,
        prefix_once: plan.prefix_once,
        merges: read_merges(document, table, &index)?,
        char_ids,
        byte_ids,
        unknown: unknown_id(document, &index),
        fuse_unknown: model["fuse_unk"].as_bool().unwrap_or(false),
        whole_words,
    })))
}

/// The library gets the file without what we do ourselves: added tokens, framing, truncation and padding.
fn library(document: &Value) -> Outcome<Engine> {
    let mut document = document.clone();
    for (name, value) in [("added_tokens", Value::Array(Vec::new())), ("post_processor", Value::Null)] {
        document[name] = value;
    }
    document["truncation"] = Value::Null;
    document["padding"] = Value::Null;
    let bytes = serde_json::to_vec(&document).map_err(|e| invalid(format!("tokenizer.json: {e}")))?;
    let tokenizer = tokenizers::Tokenizer::from_bytes(bytes).map_err(|e| invalid(format!("tokenizer.json: {e}")))?;
    Ok(Engine::Library(Box::new(tokenizer)))
}

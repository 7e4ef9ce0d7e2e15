//! Constrained decoding: masks of allowed tokens for a JSON schema, a regular expression or a grammar.
use std::sync::Arc;

use llguidance::{api::TopLevelGrammar, earley::SlicedBiasComputer, Matcher, ParserFactory};
use toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use crate::guard::{invalid, Outcome};
use crate::ts_grammar_kind;
use crate::tokenizer::{EncodeOptions, Tokenizer};

/// Built on the first grammar only: the trie of a large vocabulary takes tens of megabytes.
pub struct GrammarParts {
    factory: ParserFactory,
}

struct Env {
    tokenizer: Arc<Tokenizer>,
    trie: TokTrie,
}
impl TokenizerEnv for Env {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }
    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        let plain = EncodeOptions { parse_special: false, add_head: false, add_tail: false, sentinel: None };
        self.trie.tokenize_with_greedy_fallback(bytes, |text| self.tokenizer.encode(text, &plain).unwrap_or_default())
    }
}

/// Between two parts of a JSON text: nothing, a blank, or a new line with its indentation. A model that may write as much
/// white space as it likes may never stop.
const WHITE_SPACE: &str = r"( |\r?\n[ \t]{0,40})?";

/// The client's own options would change what is enforced.
fn with_options(schema: serde_json::Value) -> serde_json::Value {
    let mut object = match schema {
        serde_json::Value::Object(object) => object,
        serde_json::Value::Bool(true) => serde_json::Map::new(),
        other => return other,
    };
    object.insert("x-guidance".to_string(), serde_json::json!({ "whitespace_pattern": WHITE_SPACE }));
    serde_json::Value::Object(object)
}

impl GrammarParts {
    pub fn new(tokenizer: &Arc<Tokenizer>) -> Result<GrammarParts, String> {
        let table = &tokenizer.table;
        let eos = tokenizer.eos.ok_or("the vocabulary names no end token, which constrained output needs")?;
        let words: Vec<Vec<u8>> = (0..table.len())
            .map(|id| {
                let mut word = Vec::new();
                if table.kinds[id].is_control() {
                    word.push(TokTrie::SPECIAL_TOKEN_MARKER);
                }
                word.extend_from_slice(table.bytes(id));
                word
            })
            .collect();
        let trie = TokTrie::from(&TokRxInfo::new(words.len() as u32, eos), &words);
        let env: TokEnv = Arc::new(Env { tokenizer: tokenizer.clone(), trie });
        let slices = SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices).map_err(|e| format!("{e:#}"))?;
        factory.quiet();
        // Errors go to the client: what is wrong, not where the parser stands.
        factory.limits_mut().verbose_errors = false;
        Ok(GrammarParts { factory })
    }

    pub fn compile(&self, kind: ts_grammar_kind, source: &[u8]) -> Outcome<Matcher> {
        let text = std::str::from_utf8(source).map_err(|e| invalid(format!("not valid UTF-8: {e}")))?;
        let grammar = match kind {
            ts_grammar_kind::TS_JSON_SCHEMA => {
                TopLevelGrammar::from_json_schema(with_options(serde_json::from_str(text).map_err(|e| invalid(format!("not JSON: {e}")))?))
            }
            ts_grammar_kind::TS_REGEX => TopLevelGrammar::from_regex(text),
            ts_grammar_kind::TS_LARK => TopLevelGrammar::from_lark(text.to_string()),
        };
        let matcher = Matcher::new(self.factory.create_parser(grammar));
        match matcher.get_error() {
            Some(message) => Err(invalid(message)),
            None => Ok(matcher),
        }
    }
}

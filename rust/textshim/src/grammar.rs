//! Constrained decoding: masks of allowed tokens for a JSON schema.
use std::sync::Arc;

use llguidance::{api::TopLevelGrammar, earley::SlicedBiasComputer, Matcher, ParserFactory};
use toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use crate::guard::{invalid, Outcome};
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
        Ok(GrammarParts { factory })
    }

    pub fn json_schema(&self, schema: &[u8]) -> Outcome<Matcher> {
        let schema: serde_json::Value = serde_json::from_slice(schema).map_err(|e| invalid(format!("schema: {e}")))?;
        let parser = self.factory.create_parser(TopLevelGrammar::from_json_schema(schema));
        let matcher = Matcher::new(parser);
        match matcher.get_error() {
            Some(message) => Err(invalid(format!("schema: {message}"))),
            None => Ok(matcher),
        }
    }
}

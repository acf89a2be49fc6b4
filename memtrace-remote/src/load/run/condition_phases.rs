//! The conditions of a plan as phases of the recordings that run.

use crate::load::plan::Condition;
use crate::recordings::Recordings;
use memtrace_model::{LoadCondition, MarkKind};
use serde_json::{Map, Value};

impl Recordings {
    /// A condition begins.
    pub(crate) fn begin(&mut self, run_id: &str, condition: &Condition) {
        let attributes = serde_json::to_value(LoadCondition {
            generator: None,
            load_run: run_id.to_owned(),
            condition: condition.condition as i64,
            input_tokens: Some(condition.input_tokens as i64),
            output_tokens: Some(condition.output_tokens as i64),
            concurrency: Some(condition.concurrency as i64),
            request_rate: None,
            prefix_reuse: Some(condition.prefix_reuse),
            requests: Some(condition.requests as i64),
            seed: Some(condition.seed),
        });
        let attributes = match attributes {
            Ok(Value::Object(attributes)) => attributes,
            _ => Map::new(),
        };
        self.mark(MarkKind::Begin, &condition.name, attributes);
    }

    /// It ends, with so many requests that were answered and that failed.
    pub(crate) fn end(&mut self, condition: &Condition, answered: usize, failed: usize) {
        let counts = [("answered_requests", answered), ("failed_requests", failed)];
        let counts = counts.map(|(name, count)| (name.to_owned(), Value::from(count)));
        self.mark(MarkKind::End, &condition.name, Map::from_iter(counts));
    }
}

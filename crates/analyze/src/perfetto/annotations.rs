//! What is known beside a name, as annotations: the keys and values of a JSON object, those of objects
//! in it with a dot between. Null is unknown, and has no annotation.

use memtrace_perfetto::Note;
use serde_json::{Map, Value};

/// The annotations of an object.
#[derive(Debug, Default)]
pub(super) struct Annotations(Vec<(String, Value)>);

impl Annotations {
    pub(super) fn of(object: Map<String, Value>) -> Self {
        let mut all = Self::default();
        all.take("", object);
        all
    }

    fn take(&mut self, prefix: &str, object: Map<String, Value>) {
        for (key, value) in object {
            let key = format!("{prefix}{key}");
            match value {
                Value::Null => {}
                Value::Object(inner) => self.take(&format!("{key}."), inner),
                Value::Array(_) => self.0.push((key, value.to_string().into())),
                value => self.0.push((key, value)),
            }
        }
    }

    pub(super) fn notes(&self) -> impl Iterator<Item = (&str, Note<'_>)> {
        self.0.iter().filter_map(|(key, value)| {
            let note = match value {
                Value::Bool(is_so) => Note::Boolean(*is_so),
                Value::String(text) => Note::Text(text),
                Value::Number(number) => match number.as_i64() {
                    Some(whole) => Note::Integer(whole),
                    None => Note::Float(number.as_f64()?),
                },
                _ => return None,
            };
            Some((key.as_str(), note))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_keep_their_type_and_null_is_left_out() {
        let json = json!({"a": 1, "b": {"c": null, "d": 0.5, "e": {"f": true}}, "g": ["x"]});
        let Value::Object(object) = json else {
            unreachable!("it is one");
        };
        let annotations = Annotations::of(object);
        let notes: Vec<_> = annotations.notes().collect();
        let expected = [
            ("a", Note::Integer(1)),
            ("b.d", Note::Float(0.5)),
            ("b.e.f", Note::Boolean(true)),
            ("g", Note::Text("[\"x\"]")),
        ];
        assert_eq!(notes, expected);
    }
}

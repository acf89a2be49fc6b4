//! Messages of JSON-RPC 2.0, one on each line: what is read of them, and what is written.

use memtrace_report::write_line;
use serde_json::{Value, json};
use std::io::{self, BufRead, Read, Write};

/// A question is some hundred bytes. A longer line is skipped.
pub(super) const LINE_BYTES: usize = 1 << 20;

/// A message that came.
#[derive(Debug, PartialEq)]
pub(super) enum Message {
    /// Something that wants an answer.
    Request {
        id: Value,
        method: String,
        params: Value,
    },
    /// Something that wants none.
    Notification { method: String, params: Value },
    /// An answer; nothing was asked.
    Response,
}

/// Why something is not answered otherwise.
#[derive(Debug, PartialEq)]
pub(super) struct Failure {
    code: i32,
    message: String,
}

impl Failure {
    pub(super) fn parse(message: String) -> Self {
        Self::of(-32700, message)
    }

    pub(super) fn invalid_request(message: &str) -> Self {
        Self::of(-32600, message.to_owned())
    }

    pub(super) fn no_method(method: &str) -> Self {
        Self::of(-32601, format!("there is no method {method}"))
    }

    pub(super) fn invalid_params(message: String) -> Self {
        Self::of(-32602, message)
    }

    /// From here on codes are a server's own.
    pub(super) fn busy(message: String) -> Self {
        Self::of(-32000, message)
    }

    fn of(code: i32, message: String) -> Self {
        Self { code, message }
    }
}

/// What could not be taken as a message: whose it is, as far as that is known, and why.
pub(super) type Refused = (Value, Failure);

/// The next message; `None` at the end.
///
/// # Errors
/// When nothing can be read.
pub(super) fn read(from: &mut dyn BufRead) -> io::Result<Option<Result<Message, Refused>>> {
    loop {
        let mut line = Vec::new();
        let most = LINE_BYTES as u64 + 1;
        if from.take(most).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        if line.len() > LINE_BYTES && !line.ends_with(b"\n") {
            from.skip_until(b'\n')?;
            let message = format!("a message is longer than {LINE_BYTES} bytes");
            return Ok(Some(Err((Value::Null, Failure::parse(message)))));
        }
        if !line.trim_ascii().is_empty() {
            return Ok(Some(parse(&line)));
        }
    }
}

fn parse(line: &[u8]) -> Result<Message, Refused> {
    let value = serde_json::from_slice(line);
    let value: Value = value.map_err(|error| {
        let message = format!("not a line of JSON: {error}");
        (Value::Null, Failure::parse(message))
    })?;
    let refused = |id: &Value, why: &str| Err((id.clone(), Failure::invalid_request(why)));
    let Value::Object(mut message) = value else {
        let why = "a message is an object; batches are not taken: write one message on each line";
        return refused(&Value::Null, why);
    };
    let id = message.remove("id");
    let is_id = |id: &Value| id.is_string() || id.is_number();
    let known = id.clone().filter(is_id).unwrap_or_default();
    if message.get("jsonrpc") != Some(&json!("2.0")) {
        return refused(&known, "`jsonrpc` is not \"2.0\"");
    }
    if message.contains_key("result") || message.contains_key("error") {
        return Ok(Message::Response);
    }
    let Some(Value::String(method)) = message.remove("method") else {
        return refused(&known, "`method` is missing, or not a text");
    };
    let params = message.remove("params").unwrap_or_else(|| json!({}));
    if !params.is_object() {
        return refused(&known, "`params` is not an object");
    }
    match id {
        None => Ok(Message::Notification { method, params }),
        Some(id) if is_id(&id) => Ok(Message::Request { id, method, params }),
        Some(_) => refused(&known, "`id` is neither a text nor a number"),
    }
}

/// Writes an answer as a line.
///
/// # Errors
/// When it can't be written.
pub(super) fn write(
    to: &mut dyn Write,
    id: &Value,
    answer: Result<Value, Failure>,
) -> io::Result<()> {
    let line = match answer {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(Failure { code, message }) => {
            let error = json!({"code": code, "message": message});
            json!({"jsonrpc": "2.0", "id": id, "error": error})
        }
    };
    write_line(&line, to)?;
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut text: &[u8]) -> Vec<Result<Message, Refused>> {
        std::iter::from_fn(|| read(&mut text).expect("a Vec can be read")).collect()
    }

    #[test]
    fn what_is_no_message_is_refused_with_the_code_and_the_id_that_belong_to_it() {
        let long = format!("{{\"id\":1,\"x\":\"{}\"}}\n", "x".repeat(LINE_BYTES));
        let deep = "[".repeat(200_000);
        for (text, code, id) in [
            ("not JSON", -32700, Value::Null),
            ("{\"jsonrpc\":\"2.0\"", -32700, Value::Null),
            (&*long, -32700, Value::Null),
            (&*deep, -32700, Value::Null),
            ("[]", -32600, Value::Null),
            ("7", -32600, Value::Null),
            ("{\"id\":7,\"method\":\"ping\"}", -32600, json!(7)),
            ("{\"jsonrpc\":\"2.0\",\"id\":\"a\"}", -32600, json!("a")),
            (
                "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}",
                -32600,
                Value::Null,
            ),
            (
                "{\"jsonrpc\":\"2.0\",\"id\":[1],\"method\":\"ping\"}",
                -32600,
                Value::Null,
            ),
            (
                "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":[1]}",
                -32600,
                json!(1),
            ),
        ] {
            let good = "{\"jsonrpc\":\"2.0\",\"method\":\"after\"}";
            let came = all(format!("{}\n{good}\n", text.trim_end()).as_bytes());
            let shown = &text[..text.len().min(60)];
            let Err((of, Failure { code: found, .. })) = &came[0] else {
                panic!("{shown}: {:?}", came[0]);
            };
            assert_eq!((of, *found), (&id, code), "{shown}");
            // What comes after it is read as if it had not been.
            assert_eq!(came.len(), 2, "{shown}");
            assert!(
                matches!(&came[1], Ok(Message::Notification { method, .. }) if method == "after")
            );
        }
        assert!(all(b"\xff\xfe\n")[0].is_err());
        assert!(all(b"\n \r\n").is_empty());
        let answer = all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}");
        assert_eq!(answer, [Ok(Message::Response)]);
    }
}

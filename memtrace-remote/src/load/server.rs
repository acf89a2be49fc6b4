//! A small server that speaks as a serving engine does, and counts a word as a token: for trying
//! `memtrace load` where there is no engine and no GPU, and for measuring what the sender costs.

use super::server_profiler::Profiler;
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// The model that it has.
pub(crate) const MODEL: &str = "memtrace-words";

/// Requests are as long as prompts.
const BODY_MAX: usize = 256 << 20;
/// The longest prompt and output together.
const MODEL_LEN: usize = 1 << 20;
/// The longest output that a request gets.
const OUTPUT_MAX: u64 = 1 << 20;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A server that listens on the loopback.
pub(crate) struct Server {
    listener: TcpListener,
    /// Between two tokens of one answer.
    period: Duration,
    profiler: Option<Arc<Profiler>>,
}

impl Server {
    /// Listens; port 0 is any free one. Each answer gets `rate` tokens a second.
    ///
    /// # Errors
    /// When the port is taken.
    pub(crate) async fn bind(port: u16, rate: f64) -> io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?,
            period: Duration::from_secs_f64(1.0 / rate),
            profiler: None,
        })
    }

    /// The same with a profiler, which writes its traces there.
    pub(crate) fn with_profiler(mut self, dir: PathBuf) -> Self {
        self.profiler = Some(Arc::new(Profiler::writing_to(dir)));
        self
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not tell.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers for as long as this is awaited.
    pub(crate) async fn run(self) {
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                // Out of descriptors: those that are open end at some time.
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            let _ = stream.set_nodelay(true);
            let period = self.period;
            let profiler = self.profiler.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let profiler = profiler.clone();
                async move {
                    let path = request.uri().path();
                    let asked = profiler.filter(|_| Profiler::is_asked(path));
                    Ok::<_, Infallible>(match asked {
                        Some(profiler) => reported(profiler.answer(path)),
                        None => answer(request, period).await,
                    })
                }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(async move { drop(connection.await) });
        }
    }
}

async fn answer(request: Request<Incoming>, period: Duration) -> Response<Body> {
    let path = request.uri().path().to_owned();
    match path.as_str() {
        "/health" => whole(StatusCode::OK, &json!({})),
        "/v1/models" => {
            let model = json!({"id": MODEL, "object": "model", "max_model_len": MODEL_LEN});
            whole(StatusCode::OK, &json!({"object": "list", "data": [model]}))
        }
        "/tokenize" | "/v1/completions" | "/v1/chat/completions" => {
            let body = http_body_util::Limited::new(request.into_body(), BODY_MAX);
            let body = body
                .collect()
                .await
                .map(http_body_util::Collected::to_bytes);
            let body = body
                .ok()
                .and_then(|body| serde_json::from_slice(&body).ok());
            let asked = body.as_ref().and_then(|body| Asked::of(&path, body));
            match asked {
                Some(asked) if path == "/tokenize" => {
                    let reported =
                        json!({"count": asked.prompt_tokens, "max_model_len": MODEL_LEN});
                    whole(StatusCode::OK, &reported)
                }
                Some(asked) => generate(asked, period).await,
                None => refusal(StatusCode::BAD_REQUEST, "a prompt is missing"),
            }
        }
        _ => refusal(StatusCode::NOT_FOUND, "there is no such path"),
    }
}

/// What a request asks for.
struct Asked {
    prompt_tokens: usize,
    output_tokens: u64,
    is_chat: bool,
    is_stream: bool,
    /// Whether a stream ends with what was used.
    has_usage: bool,
}

impl Asked {
    fn of(path: &str, body: &Value) -> Option<Self> {
        let messages = body.get("messages").and_then(Value::as_array);
        let prompt = match messages {
            Some(messages) => messages.first()?.get("content")?,
            None => body.get("prompt")?,
        };
        let output = ["max_tokens", "max_completion_tokens"];
        let output = output.into_iter().find_map(|name| body.get(name)?.as_u64());
        let usage = body
            .get("stream_options")
            .and_then(|asked| asked.get("include_usage"));
        Some(Self {
            has_usage: usage.and_then(Value::as_bool).unwrap_or(false),
            prompt_tokens: words(prompt)?,
            output_tokens: output.unwrap_or(16).min(OUTPUT_MAX),
            is_chat: path.contains("chat"),
            is_stream: body.get("stream").and_then(Value::as_bool).unwrap_or(false),
        })
    }

    fn usage(&self) -> Value {
        json!({"prompt_tokens": self.prompt_tokens, "completion_tokens": self.output_tokens})
    }

    /// An answer, or a piece of one. Clients tell by `object` what it is.
    fn answer(&self, choices: &[Value], usage: Option<Value>) -> Value {
        let object = match (self.is_chat, self.is_stream) {
            (true, true) => "chat.completion.chunk",
            (true, false) => "chat.completion",
            (false, _) => "text_completion",
        };
        let mut answer = json!({"object": object, "model": MODEL, "choices": choices});
        if let Some(usage) = usage {
            answer["usage"] = usage;
        }
        answer
    }

    fn piece(&self, text: &str, is_last: bool) -> Value {
        let reason = if is_last {
            json!("length")
        } else {
            Value::Null
        };
        match (self.is_chat, self.is_stream) {
            (true, true) => {
                json!({"index": 0, "delta": {"content": text}, "finish_reason": reason})
            }
            (true, false) => {
                let message = json!({"role": "assistant", "content": text});
                json!({"index": 0, "message": message, "finish_reason": reason})
            }
            (false, _) => json!({"index": 0, "text": text, "finish_reason": reason}),
        }
    }
}

/// The words of a prompt, which is a text or a list of parts with texts.
fn words(prompt: &Value) -> Option<usize> {
    let of_text = |text: &str| text.split_whitespace().count();
    match prompt {
        Value::String(text) => Some(of_text(text)),
        Value::Array(parts) => {
            let texts = parts.iter().map(|part| part.get("text")?.as_str());
            texts.map(|text| text.map(of_text)).sum()
        }
        _ => None,
    }
}

async fn generate(asked: Asked, period: Duration) -> Response<Body> {
    if asked.is_stream {
        let mut tokens = interval_at(Instant::now() + period, period);
        tokens.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let stream = Tokens {
            asked,
            tokens,
            sent: 0,
            is_over: false,
        };
        let body = StreamBody::new(stream).boxed_unsync();
        return with_type(StatusCode::OK, "text/event-stream", body);
    }
    let count = u32::try_from(asked.output_tokens).unwrap_or(u32::MAX);
    tokio::time::sleep(period.saturating_mul(count)).await;
    let text = " word".repeat(count as usize);
    let choice = asked.piece(&text, true);
    whole(
        StatusCode::OK,
        &asked.answer(&[choice], Some(asked.usage())),
    )
}

/// The stream of an answer: a token at each tick, then what was used.
struct Tokens {
    asked: Asked,
    tokens: Interval,
    sent: u64,
    is_over: bool,
}

impl futures_core::Stream for Tokens {
    type Item = Result<Frame<Bytes>, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let data = if self.sent < self.asked.output_tokens {
            std::task::ready!(self.tokens.poll_tick(context));
            self.sent += 1;
            let piece = self
                .asked
                .piece(" word", self.sent == self.asked.output_tokens);
            format!("data: {}\n\n", self.asked.answer(&[piece], None))
        } else {
            self.is_over = true;
            let usage = match self.asked.has_usage {
                true => format!(
                    "data: {}\n\n",
                    self.asked.answer(&[], Some(self.asked.usage()))
                ),
                false => String::new(),
            };
            format!("{usage}data: [DONE]\n\n")
        };
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(data)))))
    }
}

fn reported(answer: io::Result<Value>) -> Response<Body> {
    match answer {
        Ok(value) => whole(StatusCode::OK, &value),
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn refusal(status: StatusCode, message: &str) -> Response<Body> {
    whole(status, &json!({"error": {"message": message}}))
}

fn whole(status: StatusCode, value: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(value.to_string()));
    with_type(status, "application/json", body.boxed_unsync())
}

fn with_type(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let value = hyper::header::HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, value);
    response
}

//! Connects, sends a request, and hands out the answer as it comes.

use super::failure::Failure;
use super::gathered::Gathered;
use super::message::{ERROR_CHARS, message_of};
use super::target::Target;
use crate::limits::{HEAD_BYTES, REFUSAL_BYTES};
use anyhow::Context;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, LOCATION, RETRY_AFTER, USER_AGENT,
};
use hyper::rt::{Read, Write};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// A server, and how to speak with it.
#[derive(Clone)]
pub(crate) struct Client {
    target: Target,
    tls: Option<TlsConnector>,
    authorization: Option<HeaderValue>,
    /// What bodies are that it sends.
    body_type: &'static str,
}

impl Client {
    /// A client with the certificates that this machine trusts. `key` goes with every request.
    ///
    /// # Errors
    /// When the key can't be sent, or no certificates are there for https.
    pub(crate) fn new(target: Target, key: Option<&str>) -> anyhow::Result<Self> {
        let authorization = key.map(|key| {
            let value = HeaderValue::from_str(&format!("Bearer {key}"));
            value.map(|mut value| {
                value.set_sensitive(true);
                value
            })
        });
        Ok(Self {
            tls: target.is_tls.then(connector).transpose()?,
            authorization: authorization.transpose().context("the key can't be sent")?,
            target,
            body_type: "application/json",
        })
    }

    /// The same for bodies of another type.
    pub(crate) fn with_bodies_of(self, body_type: &'static str) -> Self {
        Self { body_type, ..self }
    }

    /// Where it sends to.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Sends a request: a POST where it has a body. Answers when the head of the answer is there.
    ///
    /// # Errors
    /// When there is no connection, or it breaks before that.
    pub(crate) async fn send(&self, path: &str, body: Option<Bytes>) -> Result<Exchange, Failure> {
        let method = match body {
            Some(_) => Method::POST,
            None => Method::GET,
        };
        let mut request = Request::builder()
            .method(method)
            .uri(self.target.path(path))
            .header(HOST, &self.target.authority)
            .header(USER_AGENT, concat!("memtrace/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "application/json, text/event-stream");
        if body.is_some() {
            request = request.header(CONTENT_TYPE, self.body_type);
        }
        if let Some(value) = &self.authorization {
            request = request.header(AUTHORIZATION, value);
        }
        let request = request.body(Full::new(body.unwrap_or_default()));
        let request = request.map_err(|error| Failure::Connect(error.to_string()))?;
        let mut connection = self.connect().await?;
        let sent = connection.sender.send_request(request).await;
        let response = sent.map_err(|error| Failure::BrokenBefore(in_words(&error)))?;
        Ok(Exchange {
            response,
            _connection: connection,
        })
    }

    async fn connect(&self) -> Result<Connection, Failure> {
        let refused = |error: &dyn std::error::Error| Failure::Connect(in_words(error));
        let place = (self.target.host.as_str(), self.target.port);
        let stream = TcpStream::connect(place).await;
        let stream = stream.map_err(|error| refused(&error))?;
        // A request is one write, and must not wait for an acknowledgement.
        stream.set_nodelay(true).map_err(|error| refused(&error))?;
        match &self.tls {
            None => Connection::over(TokioIo::new(stream)).await,
            Some(tls) => {
                let name = ServerName::try_from(self.target.host.clone());
                let name = name.map_err(|error| refused(&error))?;
                let stream = tls.connect(name, stream).await;
                Connection::over(TokioIo::new(stream.map_err(|error| refused(&error))?)).await
            }
        }
    }
}

/// TLS with the certificates that this machine trusts.
///
/// # Errors
/// When it has none.
pub(crate) fn connector() -> anyhow::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let errors: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        let errors = errors.join("; ");
        anyhow::bail!("this machine has no certificates to verify an https server with: {errors}");
    }
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// A connection, which goes when this is dropped.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    task: JoinHandle<()>,
}

impl Connection {
    async fn over<S>(stream: S) -> Result<Self, Failure>
    where
        S: Read + Write + Unpin + Send + 'static,
    {
        let shaken = Builder::new().max_buf_size(HEAD_BYTES).handshake(stream);
        let shaken = shaken.await;
        let (sender, connection) = shaken.map_err(|error| Failure::Connect(in_words(&error)))?;
        // What breaks it, its request is reported.
        let task = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender, task })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An answer that has begun.
pub(crate) struct Exchange {
    response: Response<Incoming>,
    _connection: Connection,
}

impl Exchange {
    pub(crate) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// What the answer is, in lower case and without parameters; empty where it does not say.
    pub(crate) fn content_type(&self) -> String {
        let value = self.response.headers().get(CONTENT_TYPE);
        let value = value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let bare = value.split(';').next().unwrap_or_default();
        bare.trim().to_ascii_lowercase()
    }

    /// What comes next; `None` at the end.
    ///
    /// # Errors
    /// When the connection breaks.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        while let Some(frame) = self.response.body_mut().frame().await {
            let frame = frame.map_err(|error| Failure::BrokenWithin(in_words(&error)))?;
            // Trailers say nothing here.
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// The whole of it, but no more than so many bytes.
    ///
    /// # Errors
    /// When the connection breaks, or it is longer.
    pub(super) async fn whole(&mut self, most: usize) -> Result<Gathered, Failure> {
        let mut whole = Gathered::default();
        while let Some(data) = self.next().await? {
            whole.add(&data, most)?;
        }
        Ok(whole)
    }

    /// Why there is no answer from a server that refuses.
    pub(super) async fn refused(&mut self) -> Failure {
        Failure::Status {
            status: self.status(),
            retry_after: self.retry_after(Timestamp::now()),
            message: self.refusal().await,
        }
    }

    /// How long the server asks to wait: seconds, or until a time of day.
    fn retry_after(&self, now: Timestamp) -> Option<Duration> {
        let value = self.response.headers().get(RETRY_AFTER)?.to_str().ok()?;
        pause_of(value.trim(), now)
    }

    /// What a server says that refuses: as much of it as matters.
    async fn refusal(&mut self) -> String {
        let mut begin = Gathered::default();
        while let Ok(Some(data)) = self.next().await
            && begin.add(&data, REFUSAL_BYTES).is_ok()
        {}
        let mut words = message_of(begin.bytes());
        if (300..400).contains(&self.status())
            && let Some(place) = self.response.headers().get(LOCATION)
        {
            let place = String::from_utf8_lossy(place.as_bytes());
            let place: String = place.chars().take(ERROR_CHARS).collect();
            words = format!("it redirects to {place}, and redirects are not followed");
        }
        words
    }
}

/// The pause that a `Retry-After` asks for (RFC 9110, 10.2.3).
fn pause_of(value: &str, now: Timestamp) -> Option<Duration> {
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = jiff::fmt::rfc2822::parse(value).ok()?.timestamp();
    Some(Duration::try_from(until.duration_since(now)).unwrap_or_default())
}

/// An error and what is behind it: hyper says little itself.
pub(crate) fn in_words(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !words.contains(&more) {
            words.push_str(": ");
            words.push_str(&more);
        }
        cause = error.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_seconds_or_until_a_time_of_day() {
        let now = "2026-11-06T08:49:30Z".parse().expect("a time");
        for (value, seconds) in [
            ("0", Some(0)),
            ("120", Some(120)),
            ("Fri, 06 Nov 2026 08:49:37 GMT", Some(7)),
            ("Fri, 06 Nov 2026 08:49:07 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(
                pause_of(value, now),
                seconds.map(Duration::from_secs),
                "{value}"
            );
        }
    }
}

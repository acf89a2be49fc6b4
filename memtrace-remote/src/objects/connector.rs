//! Sends the requests of `object_store` by hyper and the TLS that this program has, and bounds their
//! answers.

use super::contact::Contact;
use super::failure::{failure, too_long, unsound};
use super::pool::{Pool, Pooled, Server};
use crate::http::{connector, in_words};
use crate::limits::{
    CONNECT_TIME, HEAD_BYTES, METADATA_TIME, PAGE_BYTES, REFUSAL_BYTES, SILENCE_TIME,
    SLOW_LINE_BYTES_PER_S,
};
use async_trait::async_trait;
use hyper::body::Body;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::header::{HOST, HeaderMap, HeaderValue, LOCATION, RANGE, USER_AGENT};
use hyper::http::uri::Scheme;
use hyper::rt::{Read, Write};
use hyper::{Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use object_store::client::{
    ClientConfigKey, ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind,
    HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody, HttpService,
};
use std::error::Error;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// For a connection to have done with its last answer, of which all was read.
const READY_PATIENCE: Duration = Duration::from_millis(100);

/// Makes a client of hyper, which notes what it hears.
#[derive(Debug)]
pub(super) struct Connector(pub(super) Arc<Contact>);

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let allowed = options.get_config_value(&ClientConfigKey::AllowHttp);
        Ok(HttpClient::new(Service {
            is_plain_allowed: allowed.as_deref() == Some("true"),
            tls: OnceLock::new(),
            pool: Arc::default(),
            contact: Arc::clone(&self.0),
        }))
    }
}

struct Service {
    /// Whether http is spoken with other machines.
    is_plain_allowed: bool,
    tls: OnceLock<TlsConnector>,
    pool: Arc<Pool>,
    contact: Arc<Contact>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Service")
    }
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let answer = self.answer(request).await;
        answer.inspect_err(|error| {
            let cause = error.source();
            self.contact
                .failed(cause.map_or_else(String::new, in_words));
        })
    }
}

impl Service {
    async fn answer(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let server = self.server(request.uri())?;
        self.contact.asks(server.to_string());
        let mut sender = match self.pooled(&server).await {
            Some(sender) => sender,
            None => self.connect(&server).await?,
        };
        if let Ok(host) = HeaderValue::from_str(&server.authority) {
            request.headers_mut().entry(HOST).or_insert(host);
        }
        let agent = HeaderValue::from_static(concat!("memtrace/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().insert(USER_AGENT, agent);
        // A server is asked for a path; the whole of it is for proxies.
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = path.map(Uri::from).unwrap_or_default();
        let body_bytes = request.body().content_length() as u64;
        let patience = SILENCE_TIME + Duration::from_secs(body_bytes / SLOW_LINE_BYTES_PER_S);
        let asked = asked_bytes(request.headers());
        let sent = timeout(patience, sender.send_request(request)).await;
        let no_answer = |_| {
            let words = format!("no answer of {server} within {} s", patience.as_secs());
            failure(HttpErrorKind::Timeout, &words)
        };
        let response = sent
            .map_err(no_answer)?
            .map_err(|error| broken(&server, &error))?;
        let (head, body) = response.into_parts();
        if head.status.is_redirection() && head.status != StatusCode::NOT_MODIFIED {
            return Err(redirects(&server, &head.headers));
        }
        let most = match head.status.is_success() {
            true => asked.unwrap_or(PAGE_BYTES as u64),
            false => REFUSAL_BYTES as u64,
        };
        if head.status.is_success() && body.size_hint().lower() > most {
            return Err(too_long(&server, most));
        }
        let contact = head.status.is_success().then(|| Arc::clone(&self.contact));
        if let Some(contact) = contact.as_ref().filter(|_| body.is_end_stream()) {
            contact.heard();
        }
        let body = Pooled::new(
            body,
            (sender, server),
            Arc::clone(&self.pool),
            most,
            contact,
        );
        Ok(Response::from_parts(head, HttpResponseBody::new(body)))
    }

    fn server(&self, uri: &Uri) -> Result<Server, HttpError> {
        let refused = |words: &str| Err(unsound(words.to_owned()));
        let Some(authority) = uri.authority() else {
            return refused("an address without a host");
        };
        let is_tls = uri.scheme() != Some(&Scheme::HTTP);
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        if !is_tls && !self.is_plain_allowed && !is_loopback(&host) {
            return refused(
                "http:// to another machine is readable for everyone on the way: use https://, or \
                 set AWS_ALLOW_HTTP=true",
            );
        }
        Ok(Server {
            port: authority
                .port_u16()
                .unwrap_or(if is_tls { 443 } else { 80 }),
            host,
            is_tls,
            authority: authority.to_string(),
        })
    }

    /// A connection that waits, and is found to be able to go on.
    async fn pooled(&self, server: &Server) -> Option<SendRequest<HttpRequestBody>> {
        let mut sender = self.pool.take(server)?;
        let ready = timeout(READY_PATIENCE, sender.ready()).await;
        matches!(ready, Ok(Ok(()))).then_some(sender)
    }

    async fn connect(&self, server: &Server) -> Result<SendRequest<HttpRequestBody>, HttpError> {
        let patience = match is_of_metadata(&server.host) {
            true => METADATA_TIME,
            false => CONNECT_TIME,
        };
        let connected = timeout(patience, self.connect_now(server)).await;
        let named = |words: &str| {
            let words = format!("no connection to {server}: {words}");
            failure(HttpErrorKind::Connect, &words)
        };
        match connected {
            Ok(connected) => connected.map_err(|words| named(&words)),
            Err(_) => Err(named(&format!("no answer within {} s", patience.as_secs()))),
        }
    }

    async fn connect_now(&self, server: &Server) -> Result<SendRequest<HttpRequestBody>, String> {
        let stream = TcpStream::connect((server.host.as_str(), server.port)).await;
        let stream = stream.map_err(|error| in_words(&error))?;
        stream.set_nodelay(true).map_err(|error| in_words(&error))?;
        if !server.is_tls {
            return over(TokioIo::new(stream)).await;
        }
        let tls = match self.tls.get() {
            Some(tls) => tls.clone(),
            None => {
                let made = connector().map_err(|error| format!("{error:#}"))?;
                self.tls.get_or_init(|| made).clone()
            }
        };
        let name = ServerName::try_from(server.host.clone());
        let name = name.map_err(|error| in_words(&error))?;
        let stream = tls.connect(name, stream).await;
        over(TokioIo::new(stream.map_err(|error| in_words(&error))?)).await
    }
}

async fn over<S>(stream: S) -> Result<SendRequest<HttpRequestBody>, String>
where
    S: Read + Write + Unpin + Send + 'static,
{
    let shaken = Builder::new().max_buf_size(HEAD_BYTES).handshake(stream);
    let (sender, connection) = shaken.await.map_err(|error| in_words(&error))?;
    // It ends when the sender is dropped; what breaks it, its request is reported.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

fn is_loopback(host: &str) -> bool {
    let address = host.parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn is_of_metadata(host: &str) -> bool {
    host.starts_with("169.254.") || host == "metadata.google.internal"
}

/// A request that the server did not take, or whose answer did not come.
fn broken(server: &Server, error: &hyper::Error) -> HttpError {
    let kind = match error.is_canceled() || error.is_closed() {
        // Nothing of it was sent.
        true => HttpErrorKind::Request,
        false => HttpErrorKind::Interrupted,
    };
    failure(kind, &format!("{server}: {}", in_words(error)))
}

/// How many bytes a request asks for, where it asks for some of an object.
fn asked_bytes(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get(RANGE)?.to_str().ok()?;
    let (from, to) = range.strip_prefix("bytes=")?.split_once('-')?;
    let (from, to): (u64, u64) = (from.parse().ok()?, to.parse().ok()?);
    Some(to.saturating_sub(from).saturating_add(1))
}

fn redirects(server: &Server, headers: &HeaderMap) -> HttpError {
    let place = headers.get(LOCATION).map(HeaderValue::as_bytes);
    let place = place.map_or("another server".into(), String::from_utf8_lossy);
    let place: String = place
        .chars()
        .filter(|letter| !letter.is_control())
        .take(200)
        .collect();
    unsound(format!(
        "{server} redirects to {place}, and redirects are not followed: name that server \
         (AWS_ENDPOINT_URL), or the region of the bucket (AWS_REGION)"
    ))
}

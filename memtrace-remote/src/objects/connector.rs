//! Sends the requests of `object_store` by hyper and the TLS that this program has.

use super::pool::{Pool, Pooled, Server};
use crate::http::{connector, in_words};
use async_trait::async_trait;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{HOST, HeaderValue, USER_AGENT};
use hyper::http::uri::Scheme;
use hyper::rt::{Read, Write};
use hyper::{Response, Uri};
use hyper_util::rt::TokioIo;
use object_store::client::{
    ClientConfigKey, ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind,
    HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody, HttpService,
};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// What answers at all does so within this.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// Where a machine of a cloud finds its own credentials. Elsewhere nobody answers there.
const METADATA_PATIENCE: Duration = Duration::from_secs(1);
/// For a connection to have done with its last answer, of which all was read.
const READY_PATIENCE: Duration = Duration::from_millis(100);
/// For an answer to begin, beside what the request itself takes on a slow line.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
const SLOW_LINE_BYTES_PER_S: u64 = 32 << 10;

/// Makes a client of hyper.
#[derive(Debug)]
pub(super) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let allowed = options.get_config_value(&ClientConfigKey::AllowHttp);
        Ok(HttpClient::new(Service {
            is_plain_allowed: allowed.as_deref() == Some("true"),
            tls: OnceLock::new(),
            pool: Arc::default(),
        }))
    }
}

struct Service {
    /// Whether http is spoken with other machines.
    is_plain_allowed: bool,
    tls: OnceLock<TlsConnector>,
    pool: Arc<Pool>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Service")
    }
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let server = self.server(request.uri())?;
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
        let patience = ANSWER_PATIENCE + Duration::from_secs(body_bytes / SLOW_LINE_BYTES_PER_S);
        let sent = timeout(patience, sender.send_request(request)).await;
        let response = sent
            .map_err(|_| failure(HttpErrorKind::Timeout, "no answer within its time"))?
            .map_err(|error| broken(&error))?;
        let (head, body) = response.into_parts();
        let body = Pooled::new(body, sender, server, Arc::clone(&self.pool));
        Ok(Response::from_parts(head, HttpResponseBody::new(body)))
    }
}

impl Service {
    fn server(&self, uri: &Uri) -> Result<Server, HttpError> {
        let refused = |words: &str| Err(failure(HttpErrorKind::Unknown, words));
        let Some(authority) = uri.authority() else {
            return refused("an address without a host");
        };
        let is_tls = uri.scheme() != Some(&Scheme::HTTP);
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        if !is_tls && !self.is_plain_allowed && !is_loopback(&host) {
            return refused(
                "http:// to another machine shows everybody on the way what is sent: use https://, \
                 or set AWS_ALLOW_HTTP=true",
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
            true => METADATA_PATIENCE,
            false => CONNECT_PATIENCE,
        };
        let connected = timeout(patience, self.connect_now(server)).await;
        let named = |words: &str| {
            let words = format!("no connection to {}: {words}", server.authority);
            failure(HttpErrorKind::Connect, &words)
        };
        match connected {
            Ok(connected) => connected.map_err(|words| named(&words)),
            Err(_) => Err(named("no answer")),
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
    let (sender, connection) = handshake(stream).await.map_err(|error| in_words(&error))?;
    // It ends when the sender is dropped; what breaks it, its request is told.
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
fn broken(error: &hyper::Error) -> HttpError {
    let kind = match error.is_canceled() || error.is_closed() {
        // Nothing of it was sent.
        true => HttpErrorKind::Request,
        false => HttpErrorKind::Interrupted,
    };
    failure(kind, &in_words(error))
}

pub(super) fn failure(kind: HttpErrorKind, words: &str) -> HttpError {
    HttpError::new(kind, std::io::Error::other(words.to_owned()))
}

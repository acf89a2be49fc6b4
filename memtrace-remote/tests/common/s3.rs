//! A small S3 that keeps what it is sent and notes what it is asked, and that misbehaves when it is
//! reported to: refuses, answers that it failed when it did not, breaks off, takes half an upload.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;

pub const KEY: &str = "AKIDTEST";
pub const BUCKET: &str = "bucket";

/// The server. Its thread ends with the test's process.
pub struct S3 {
    pub port: u16,
    pub state: Arc<State>,
}

#[derive(Default)]
pub struct State {
    pub objects: Mutex<BTreeMap<String, Object>>,
    uploads: Mutex<BTreeMap<u64, BTreeMap<u32, Object>>>,
    /// Of 100 requests so many fail, each in another way.
    pub faults_percent: AtomicU64,
    requests: AtomicU64,
    /// What was asked and done: method, key (of a listing its prefix), status.
    pub done: Mutex<Vec<(Method, String, u16)>>,
    /// Bytes of objects that were sent out.
    pub sent_bytes: AtomicU64,
    /// Everything is refused.
    pub is_closed_to_all: AtomicBool,
    /// It knows no If-None-Match.
    pub lacks_create: AtomicBool,
    /// It keeps sizes and no bytes.
    pub is_forgetful: AtomicBool,
}

#[derive(Clone, Default)]
pub struct Object {
    pub bytes: Bytes,
    pub size: u64,
}

/// The connection is closed without an answer.
#[derive(Debug)]
struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("broken off")
    }
}

impl std::error::Error for Broken {}

type Answer = Result<Response<Full<Bytes>>, Broken>;

impl S3 {
    pub fn start() -> Self {
        let state = Arc::new(State::default());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        listener.set_nonblocking(true).unwrap();
        let serving = Arc::clone(&state);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().unwrap();
            runtime.block_on(serve(listener, serving));
        });
        Self { port, state }
    }

    /// What the program is to have in its environment.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        vec![
            ("AWS_ENDPOINT_URL", endpoint),
            ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ]
    }

    pub fn keys(&self) -> Vec<String> {
        self.state.objects.lock().unwrap().keys().cloned().collect()
    }

    pub fn object(&self, key: &str) -> Bytes {
        self.state.objects.lock().unwrap()[key].bytes.clone()
    }

    /// Has this as if somebody had sent it.
    pub fn put(&self, key: &str, bytes: impl Into<Bytes>) {
        let bytes = bytes.into();
        let size = bytes.len() as u64;
        let object = Object { bytes, size };
        self.state
            .objects
            .lock()
            .unwrap()
            .insert(key.to_owned(), object);
    }

    /// That no upload was begun and left.
    pub fn has_no_uploads(&self) -> bool {
        self.state.uploads.lock().unwrap().is_empty()
    }

    /// How often an object got its name or a new content.
    pub fn times_written(&self, key: &str) -> usize {
        let done = self.state.done.lock().unwrap();
        let is_write = |method: &Method| *method == Method::PUT || *method == Method::POST;
        let written = done.iter().filter(|(method, of, status)| {
            of == key && is_write(method) && (200..300).contains(status)
        });
        written.count()
    }
}

async fn serve(listener: std::net::TcpListener, state: Arc<State>) {
    let listener = TcpListener::from_std(listener).unwrap();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            let service = service_fn(|request| answer(&state, request));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            drop(connection.await);
        });
    }
}

async fn answer(state: &State, request: Request<Incoming>) -> Answer {
    let number = state.requests.fetch_add(1, Ordering::Relaxed);
    let percent = state.faults_percent.load(Ordering::Relaxed);
    // Spread evenly, and never the same requests.
    let is_faulty = (number * 37 + number / 7) % 100 < percent;
    match (is_faulty, number % 5) {
        (false, _) => handle(state, request).await,
        (true, 0) => error(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
        (true, 1) => {
            // All was done, and nobody gets to know.
            handle(state, request).await?;
            Err(Broken)
        }
        (true, 2) => {
            let mut body = request.into_body();
            drop(body.frame().await);
            Err(Broken)
        }
        (true, 3) => {
            tokio::time::sleep(Duration::from_millis(300)).await;
            handle(state, request).await
        }
        (true, _) => error(StatusCode::SERVICE_UNAVAILABLE, "SlowDown"),
    }
}

async fn handle(state: &State, request: Request<Incoming>) -> Answer {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let query = query(request.uri().query().unwrap_or_default());
    let headers = request.headers().clone();
    let header = |name: &str| {
        let value = headers.get(name)?.to_str().ok()?;
        Some(value.to_owned())
    };
    let Ok(body) = request.into_body().collect().await else {
        return Err(Broken);
    };
    let body = body.to_bytes();
    let authorization = header("authorization").unwrap_or_default();
    if state.is_closed_to_all.load(Ordering::Relaxed) {
        return error(StatusCode::FORBIDDEN, "AccessDenied");
    }
    if header("x-amz-security-token").as_deref() == Some("old") {
        return error(StatusCode::BAD_REQUEST, "ExpiredToken");
    }
    if !authorization.contains(&format!("Credential={KEY}/")) {
        return error(StatusCode::FORBIDDEN, "InvalidAccessKeyId");
    }
    let path = decode(path.trim_start_matches('/'));
    let (bucket, key) = path.split_once('/').unwrap_or((&path, ""));
    if bucket != BUCKET {
        return error(StatusCode::NOT_FOUND, "NoSuchBucket");
    }
    let is_create = header("if-none-match").as_deref() == Some("*");
    let response = match (&method, query.get("uploadId")) {
        (&Method::GET, None) if key.is_empty() => list(state, &query),
        (&Method::GET | &Method::HEAD, None) => get(
            state,
            key,
            method == Method::HEAD,
            header("range").as_deref(),
        ),
        (&Method::PUT, None) if is_create && state.lacks_create.load(Ordering::Relaxed) => {
            error(StatusCode::NOT_IMPLEMENTED, "NotImplemented")
        }
        (&Method::PUT, None) => put(state, key, body, is_create),
        (&Method::PUT, Some(upload)) => put_piece(state, upload, &query["partNumber"], body),
        (&Method::POST, None) => begin_upload(state),
        (&Method::POST, Some(upload)) => complete(state, upload, key),
        (&Method::DELETE, Some(upload)) => {
            let upload = upload.parse().unwrap_or(0);
            state.uploads.lock().unwrap().remove(&upload);
            ok(StatusCode::NO_CONTENT, "")
        }
        (&Method::DELETE, None) => {
            state.objects.lock().unwrap().remove(key);
            ok(StatusCode::NO_CONTENT, "")
        }
        _ => error(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
    }?;
    // Pieces of uploads and their begin give nothing a name.
    let is_named = method != Method::POST || query.contains_key("uploadId");
    if is_named && !query.contains_key("partNumber") {
        let status = response.status().as_u16();
        let prefix = query.get("prefix").map_or("", String::as_str);
        let of = if key.is_empty() { prefix } else { key };
        let mut done = state.done.lock().unwrap();
        done.push((method, of.to_owned(), status));
    }
    Ok(response)
}

fn put(state: &State, key: &str, bytes: Bytes, is_create: bool) -> Answer {
    let mut objects = state.objects.lock().unwrap();
    if is_create && objects.contains_key(key) {
        return error(StatusCode::PRECONDITION_FAILED, "PreconditionFailed");
    }
    objects.insert(key.to_owned(), kept(state, bytes));
    ok(StatusCode::OK, "")
}

fn kept(state: &State, bytes: Bytes) -> Object {
    let size = bytes.len() as u64;
    match state.is_forgetful.load(Ordering::Relaxed) && size > 1 << 20 {
        true => Object {
            bytes: Bytes::new(),
            size,
        },
        false => Object { bytes, size },
    }
}

fn put_piece(state: &State, upload: &str, number: &str, bytes: Bytes) -> Answer {
    let mut uploads = state.uploads.lock().unwrap();
    let Some(upload) = upload.parse().ok().and_then(|id: u64| uploads.get_mut(&id)) else {
        return error(StatusCode::NOT_FOUND, "NoSuchUpload");
    };
    upload.insert(number.parse().unwrap(), kept(state, bytes));
    ok(StatusCode::OK, "")
}

fn begin_upload(state: &State) -> Answer {
    let id = state.requests.fetch_add(1, Ordering::Relaxed);
    state.uploads.lock().unwrap().insert(id, BTreeMap::new());
    let xml = format!(
        "<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
    );
    ok(StatusCode::OK, &xml)
}

fn complete(state: &State, upload: &str, key: &str) -> Answer {
    let upload = upload.parse().unwrap_or(0);
    let Some(pieces) = state.uploads.lock().unwrap().remove(&upload) else {
        return error(StatusCode::NOT_FOUND, "NoSuchUpload");
    };
    let object = Object {
        size: pieces.values().map(|piece| piece.size).sum(),
        bytes: pieces
            .values()
            .flat_map(|piece| piece.bytes.clone())
            .collect(),
    };
    state.objects.lock().unwrap().insert(key.to_owned(), object);
    let xml = "<CompleteMultipartUploadResult><ETag>\"e\"</ETag></CompleteMultipartUploadResult>";
    ok(StatusCode::OK, xml)
}

fn get(state: &State, key: &str, is_head: bool, range: Option<&str>) -> Answer {
    let Some(object) = state.objects.lock().unwrap().get(key).cloned() else {
        return error(StatusCode::NOT_FOUND, "NoSuchKey");
    };
    let response = Response::builder()
        .header("etag", "\"e\"")
        .header("last-modified", "Mon, 23 Nov 2026 12:19:13 GMT");
    if is_head {
        let response = response.header("content-length", object.size);
        return Ok(response.body(Full::default()).unwrap());
    }
    let length = object.bytes.len();
    let asked = range.and_then(|range| range.strip_prefix("bytes="));
    let (from, to) = match asked.and_then(|range| range.split_once('-')) {
        Some(("", last)) => (length.saturating_sub(last.parse().unwrap()), length),
        Some((from, "")) => (from.parse().unwrap(), length),
        Some((from, to)) => (
            from.parse().unwrap(),
            length.min(to.parse::<usize>().unwrap() + 1),
        ),
        None => (0, length),
    };
    if from >= to && length > 0 {
        return error(StatusCode::RANGE_NOT_SATISFIABLE, "InvalidRange");
    }
    let bytes = object.bytes.slice(from..to);
    state
        .sent_bytes
        .fetch_add(bytes.len() as u64, Ordering::Relaxed);
    let response = match range {
        Some(_) => response
            .status(StatusCode::PARTIAL_CONTENT)
            .header("content-range", format!("bytes {from}-{}/{length}", to - 1)),
        None => response,
    };
    Ok(response.body(Full::new(bytes)).unwrap())
}

/// So few that a listing of any size takes several.
const LISTED_AT_ONCE: usize = 7;

fn list(state: &State, query: &BTreeMap<String, String>) -> Answer {
    let objects = state.objects.lock().unwrap();
    let empty = String::new();
    let prefix = query.get("prefix").unwrap_or(&empty);
    let after = query.get("continuation-token").or(query.get("start-after"));
    let after = after.unwrap_or(&empty);
    let mut xml = "<ListBucketResult>".to_owned();
    let mut listed = 0;
    let mut last_prefix = String::new();
    for (key, object) in objects.iter() {
        let Some(rest) = key.strip_prefix(prefix.as_str()) else {
            continue;
        };
        if key <= after || (after.ends_with('/') && key.starts_with(after.as_str())) {
            continue;
        }
        let folder = match query.get("delimiter") {
            Some(_) => rest
                .split_once('/')
                .map(|(folder, _)| format!("{prefix}{folder}/")),
            None => None,
        };
        if folder.as_ref().is_some_and(|folder| *folder == last_prefix) {
            continue;
        }
        if listed == LISTED_AT_ONCE {
            let _ = write!(xml, "<IsTruncated>true</IsTruncated>");
            break;
        }
        listed += 1;
        last_prefix = match folder {
            Some(folder) => {
                let _ = write!(
                    xml,
                    "<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>"
                );
                folder
            }
            None => {
                let size = object.size;
                let _ = write!(
                    xml,
                    "<Contents><Key>{key}</Key><Size>{size}</Size><ETag>\"e\"</ETag>\
                     <LastModified>2026-11-23T12:19:13.000Z</LastModified></Contents>"
                );
                key.clone()
            }
        };
    }
    if xml.contains("IsTruncated") {
        let _ = write!(
            xml,
            "<NextContinuationToken>{last_prefix}</NextContinuationToken>"
        );
    }
    xml.push_str("</ListBucketResult>");
    ok(StatusCode::OK, &xml)
}

fn ok(status: StatusCode, text: &str) -> Answer {
    let response = Response::builder().status(status).header("etag", "\"e\"");
    Ok(response.body(Full::new(text.to_owned().into())).unwrap())
}

fn error(status: StatusCode, code: &str) -> Answer {
    let xml = format!("<Error><Code>{code}</Code><Message>it is {code}</Message></Error>");
    ok(status, &xml)
}

fn query(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs
        .map(|(key, value)| (key.to_owned(), decode(value)))
        .collect()
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let code = after
            .get(..2)
            .and_then(|code| std::str::from_utf8(code).ok());
        let code = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        match (first, code) {
            (b'%', Some(code)) => {
                bytes.push(code);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap()
}

//! A server on this machine that speaks S3 and an engine's HTTP, and does one thing wrong at one place.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// What it does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A body without end, in chunks.
    EndlessBody,
    /// The same, of a stated length that nobody has.
    EndlessLength,
    /// A length that no number of bytes has, and nothing behind it.
    LyingLength,
    /// A refusal without end.
    EndlessRefusal,
    /// Headers without end.
    EndlessHead,
    /// One header without end.
    EndlessHeader,
    /// Trailers without end.
    EndlessTrailers,
    /// "Continue", for ever.
    EndlessContinue,
    /// A chunk of 2^64 bytes.
    GiantChunk,
    /// The extension of a chunk, without end.
    EndlessExtension,
    /// A byte now and then.
    Drip,
    /// The same from the first byte on.
    DripHead,
    /// Nothing at all.
    Silent,
    /// It closes at once.
    Closes,
    /// It closes in the midst of a body.
    ClosesWithin,
    /// It speaks another protocol.
    OtherProtocol,
    /// Look there; what it does if it is looked there is noted.
    RedirectElsewhere,
    RedirectTo(&'static str),
    RedirectLoop,
    /// A body that is deep, as JSON or XML.
    Deep,
    /// A body of a list that is far larger when it is understood.
    Wide,
    /// Entities that name each other.
    EntityBomb,
    /// Packed bytes that are many when they are unpacked, which nobody asked for.
    Packed,
    /// Pages of a listing for ever.
    EndlessPages,
    /// The same page for ever.
    SamePage,
    /// Pages without a key, for ever.
    EmptyPages,
    /// A listing with this key in it.
    Key(&'static str),
    /// A key of so many bytes.
    LongKey(usize),
    /// A listing with this size in it.
    Size(&'static str),
    /// A range that was not asked for.
    OtherRange,
    /// More bytes than the range has.
    MoreThanRange,
    /// Another ETag each time, and a body that breaks off.
    OtherTag,
    /// Events for ever, fast.
    EndlessEvents,
    /// One line of an event for ever.
    EndlessEvent,
    /// Lines of no event for ever.
    EndlessComments,
    /// So many servers behind a router.
    ManyWorkers(usize),
    /// A server behind a router at this address.
    Worker(&'static str),
}

/// The server. Its threads end when this is dropped.
pub struct Hostile {
    pub port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    wrong: Wrong,
    /// What the request line has where it does it.
    at: &'static str,
    port: u16,
    /// Whether anybody came to where a redirect leads.
    elsewhere: TcpListener,
    requests: AtomicUsize,
    is_over: AtomicBool,
}

impl Hostile {
    pub fn start(wrong: Wrong, at: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
        elsewhere.set_nonblocking(true).unwrap();
        let shared = Arc::new(Shared {
            wrong,
            at,
            port,
            elsewhere,
            requests: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(stream), serving) = (stream, Arc::clone(&serving)) else {
                    continue;
                };
                // Whoever is answered goes when he has had enough.
                std::thread::spawn(move || drop(serving.serve(stream)));
            }
        });
        Self { port, shared }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// How many requests came.
    pub fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// Whether somebody followed a redirect to another place.
    pub fn was_followed(&self) -> bool {
        self.shared.elsewhere.accept().is_ok()
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

/// A request, as far as matters.
struct Request {
    /// As in "GET /path?query".
    line: String,
    range: Option<(u64, u64)>,
}

impl Shared {
    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(Duration::from_secs(20)))?;
        let mut out = stream.try_clone()?;
        let mut input = BufReader::new(stream);
        while let Some(request) = read_request(&mut input)? {
            self.requests.fetch_add(1, Ordering::Relaxed);
            match request.line.contains(self.at) {
                true => self.do_wrong(&request, &mut out)?,
                false => self.do_right(&request, &mut out)?,
            }
        }
        Ok(())
    }

    fn do_right(&self, request: &Request, out: &mut TcpStream) -> io::Result<()> {
        let line = request.line.as_str();
        let is_s3 = line.contains("/bucket");
        match line {
            _ if is_s3 && line.contains("list-type") => {
                let run_file = contents("prefix/run.json", &RUN_FILE.len().to_string());
                answer(out, "200 OK", XML, &page(&run_file, None))
            }
            _ if is_s3 && line.starts_with("GET") => ranged(out, request, RUN_FILE, ""),
            _ if is_s3 && line.starts_with("HEAD") => answer(out, "404 Not Found", XML, ""),
            _ if is_s3 => answer(out, "200 OK", XML, ""),
            _ if line.contains("/v1/models") => {
                answer(out, "200 OK", JSON, r#"{"data":[{"id":"m"}]}"#)
            }
            _ if line.contains("/tokenize") => answer(out, "200 OK", JSON, r#"{"count":8}"#),
            _ if line.contains("/v1/completions") => {
                let body = "data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":\"stop\"}]}\n\n\
                            data: [DONE]\n\n";
                answer(out, "200 OK", EVENTS, body)
            }
            _ if line.contains("/workers") => {
                let body = format!(
                    r#"{{"workers":[{{"url":"http://127.0.0.1:{}"}}]}}"#,
                    self.port
                );
                answer(out, "200 OK", JSON, &body)
            }
            _ if line.contains("/is_sleeping") => {
                answer(out, "200 OK", JSON, r#"{"is_sleeping":false}"#)
            }
            _ => answer(out, "200 OK", JSON, "{}"),
        }
    }

    fn do_wrong(&self, request: &Request, out: &mut TcpStream) -> io::Result<()> {
        let line = request.line.as_str();
        let is_s3 = line.contains("/bucket");
        let kind = match () {
            () if is_s3 => XML,
            () if line.contains("/v1/completions") => EVENTS,
            () => JSON,
        };
        // What anybody would go on reading.
        let begin = match kind {
            XML => "<ListBucketResult>",
            EVENTS => "data: {\"choices\":[{\"text\":\"a\"}]}\n\n",
            _ => "{\"data\":[{\"id\":\"m\"}],",
        };
        let head = |more: &str| format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{more}\r\n");
        let chunked = head("transfer-encoding: chunked\r\n");
        match self.wrong {
            Wrong::EndlessBody => {
                let filler = filler(kind);
                out.write_all(chunked.as_bytes())?;
                chunk(out, begin.as_bytes())?;
                for_ever(|| chunk(out, filler.as_bytes()))
            }
            Wrong::EndlessLength => {
                let range = match request.range {
                    Some((from, to)) => format!("content-range: bytes {from}-{to}/{}\r\n", to + 1),
                    None => String::new(),
                };
                let status = if request.range.is_some() {
                    "206"
                } else {
                    "200"
                };
                let filler = filler(kind);
                write!(
                    out,
                    "HTTP/1.1 {status} OK\r\ncontent-type: {kind}\r\nlast-modified: {DATE}\r\n\
                     etag: \"e\"\r\n{range}content-length: 1099511627776\r\n\r\n{begin}"
                )?;
                for_ever(|| out.write_all(filler.as_bytes()))
            }
            Wrong::LyingLength => {
                let head = head("content-length: 9223372036854775807\r\n");
                out.write_all(head.as_bytes())?;
                out.write_all(begin.as_bytes())?;
                Err(io::ErrorKind::BrokenPipe.into())
            }
            Wrong::EndlessRefusal => {
                write!(
                    out,
                    "HTTP/1.1 400 No\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n"
                )?;
                let filler = filler(kind);
                for_ever(|| chunk(out, filler.as_bytes()))
            }
            Wrong::EndlessHead => {
                out.write_all(b"HTTP/1.1 200 OK\r\n")?;
                for_ever(|| out.write_all(b"x-more: and more and more and more\r\n"))
            }
            Wrong::EndlessHeader => {
                out.write_all(b"HTTP/1.1 200 OK\r\nx-more: ")?;
                for_ever(|| out.write_all(&[b'x'; 1 << 14]))
            }
            Wrong::EndlessTrailers => {
                out.write_all(chunked.as_bytes())?;
                chunk(out, begin.as_bytes())?;
                out.write_all(b"0\r\n")?;
                for_ever(|| out.write_all(b"x-more: and more and more and more\r\n"))
            }
            Wrong::EndlessContinue => for_ever(|| {
                std::thread::sleep(Duration::from_millis(1));
                out.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")
            }),
            Wrong::GiantChunk => {
                out.write_all(chunked.as_bytes())?;
                out.write_all(b"ffffffffffffffff\r\n")?;
                out.write_all(begin.as_bytes())?;
                let filler = filler(kind);
                for_ever(|| out.write_all(filler.as_bytes()))
            }
            Wrong::EndlessExtension => {
                out.write_all(chunked.as_bytes())?;
                out.write_all(b"5;")?;
                for_ever(|| out.write_all(&[b'x'; 1 << 14]))
            }
            Wrong::Drip => {
                out.write_all(chunked.as_bytes())?;
                chunk(out, begin.as_bytes())?;
                for_ever(|| {
                    std::thread::sleep(Duration::from_millis(300));
                    chunk(out, b" ")
                })
            }
            Wrong::DripHead => {
                out.write_all(b"HTTP/1.1 200 OK\r\nx-more: ")?;
                for_ever(|| {
                    std::thread::sleep(Duration::from_millis(300));
                    out.write_all(b"x")
                })
            }
            Wrong::Silent => for_ever(|| {
                std::thread::sleep(Duration::from_millis(300));
                match self.is_over.load(Ordering::Relaxed) {
                    true => Err(io::ErrorKind::BrokenPipe.into()),
                    false => Ok(()),
                }
            }),
            Wrong::Closes => Err(io::ErrorKind::BrokenPipe.into()),
            Wrong::ClosesWithin => {
                out.write_all(head("content-length: 1000\r\n").as_bytes())?;
                out.write_all(begin.as_bytes())?;
                Err(io::ErrorKind::BrokenPipe.into())
            }
            Wrong::OtherProtocol => {
                out.write_all(b"SSH-2.0-OpenSSH_9.2\r\n")?;
                Err(io::ErrorKind::BrokenPipe.into())
            }
            Wrong::RedirectElsewhere => {
                let port = self.elsewhere.local_addr()?.port();
                redirect(out, &format!("http://127.0.0.1:{port}/"))
            }
            Wrong::RedirectTo(place) => redirect(out, place),
            Wrong::RedirectLoop => {
                let path = line.split(' ').nth(1).unwrap_or("/");
                redirect(out, path)
            }
            Wrong::Deep => {
                let deep = match kind {
                    XML => "<Contents>".repeat(100_000),
                    EVENTS => format!("data: {}\n\n", "[".repeat(100_000)),
                    _ => "[".repeat(100_000),
                };
                answer(out, "200 OK", kind, &deep)
            }
            Wrong::Wide => {
                let list = "[],".repeat(1_300_000);
                let wide = match kind {
                    XML => page(&contents("k", "1").repeat(10_000), None),
                    EVENTS => format!("data: {{\"error\":[{list}0]}}\n\n"),
                    _ => format!("{{\"data\":[{list}0],\"error\":[0]}}"),
                };
                answer(out, "200 OK", kind, &wide)
            }
            Wrong::EntityBomb => {
                let mut bomb =
                    "<?xml version=\"1.0\"?><!DOCTYPE l [<!ENTITY a0 \"haha\">".to_owned();
                for depth in 1..30 {
                    let before = depth - 1;
                    bomb += &format!("<!ENTITY a{depth} \"&a{before};&a{before};\">");
                }
                bomb += &format!("]>{}", page(&contents("&a29;", "1"), None));
                answer(out, "200 OK", kind, &bomb)
            }
            Wrong::Packed => {
                let body = [0x1f_u8, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
                let length = body.len();
                let head = format!("content-encoding: gzip\r\ncontent-length: {length}\r\n");
                out.write_all(
                    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{head}\r\n").as_bytes(),
                )?;
                out.write_all(&body)
            }
            Wrong::EndlessPages => {
                let number = self.requests.load(Ordering::Relaxed);
                let keys: String = (0..500)
                    .map(|key| contents(&format!("prefix/mem/part-{number}-{key}.parquet"), "1"))
                    .collect();
                answer(out, "200 OK", XML, &page(&keys, Some(&number.to_string())))
            }
            Wrong::SamePage => {
                let keys = contents("prefix/run.json", "2");
                answer(out, "200 OK", XML, &page(&keys, Some("again")))
            }
            Wrong::EmptyPages => {
                let number = self.requests.load(Ordering::Relaxed);
                answer(out, "200 OK", XML, &page("", Some(&number.to_string())))
            }
            Wrong::Key(key) => answer(out, "200 OK", XML, &page(&contents(key, "1"), None)),
            Wrong::LongKey(length) => {
                let key = format!("prefix/{}", "k".repeat(length));
                answer(out, "200 OK", XML, &page(&contents(&key, "1"), None))
            }
            Wrong::Size(size) => {
                let run_file = contents("prefix/run.json", size);
                answer(out, "200 OK", XML, &page(&run_file, None))
            }
            Wrong::OtherRange => {
                let body = "x".repeat(10);
                write!(
                    out,
                    "HTTP/1.1 206 Partial\r\nlast-modified: {DATE}\r\netag: \"e\"\r\n\
                     content-range: bytes 5-14/18446744073709551615\r\ncontent-length: 10\r\n\r\n{body}"
                )
            }
            Wrong::MoreThanRange => {
                let (from, to) = request.range.unwrap_or((0, 1));
                write!(
                    out,
                    "HTTP/1.1 206 Partial\r\nlast-modified: {DATE}\r\netag: \"e\"\r\n\
                     content-range: bytes {from}-{to}/{}\r\ntransfer-encoding: chunked\r\n\r\n",
                    to + 1
                )?;
                for_ever(|| chunk(out, &[b' '; 1 << 14]))
            }
            Wrong::OtherTag => {
                let number = self.requests.load(Ordering::Relaxed);
                ranged(out, request, RUN_FILE, &number.to_string())?;
                Err(io::ErrorKind::BrokenPipe.into())
            }
            Wrong::EndlessEvents => {
                let many = begin.repeat(200);
                out.write_all(chunked.as_bytes())?;
                for_ever(|| chunk(out, many.as_bytes()))
            }
            Wrong::EndlessEvent => {
                out.write_all(chunked.as_bytes())?;
                chunk(out, b"data: {\"choices\":[{\"text\":\"")?;
                for_ever(|| chunk(out, &[b'a'; 1 << 14]))
            }
            Wrong::EndlessComments => {
                out.write_all(chunked.as_bytes())?;
                for_ever(|| chunk(out, ": \n".repeat(1_000).as_bytes()))
            }
            Wrong::ManyWorkers(count) => {
                let worker = r#"{"url":"http://127.0.0.1:9"}"#;
                let workers = vec![worker; count].join(",");
                answer(out, "200 OK", JSON, &format!("{{\"workers\":[{workers}]}}"))
            }
            Wrong::Worker(url) => {
                let body = format!("{{\"workers\":[{{\"url\":\"{url}\"}}]}}");
                answer(out, "200 OK", JSON, &body)
            }
        }
    }
}

const XML: &str = "application/xml";
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
const DATE: &str = "Mon, 23 Nov 2026 12:19:13 GMT";
const RUN_FILE: &str = "{}";

fn filler(kind: &str) -> String {
    match kind {
        XML => contents("prefix/mem/part-00001.parquet", "1").repeat(200),
        EVENTS => "data: {\"choices\":[{\"text\":\"a\"}]}\n\n".repeat(200),
        _ => " ".repeat(1 << 14),
    }
}

fn contents(key: &str, size: &str) -> String {
    format!(
        "<Contents><Key>{key}</Key><Size>{size}</Size><ETag>\"e\"</ETag>\
         <LastModified>2026-11-23T12:19:13.000Z</LastModified></Contents>"
    )
}

fn page(contents: &str, token: Option<&str>) -> String {
    let more = token.map_or_else(String::new, |token| {
        format!(
            "<IsTruncated>true</IsTruncated>\
             <NextContinuationToken>{token}</NextContinuationToken>"
        )
    });
    format!("<ListBucketResult>{contents}{more}</ListBucketResult>")
}

fn answer(out: &mut TcpStream, status: &str, kind: &str, body: &str) -> io::Result<()> {
    let length = body.len();
    write!(
        out,
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\netag: \"e\"\r\nlast-modified: {DATE}\r\n\
         content-length: {length}\r\n\r\n"
    )?;
    out.write_all(body.as_bytes())
}

fn ranged(out: &mut TcpStream, request: &Request, body: &str, tag: &str) -> io::Result<()> {
    let length = body.len() as u64;
    let (from, to) = request.range.unwrap_or((0, length - 1));
    let to = to.min(length - 1);
    let text = to + 1 - from;
    write!(
        out,
        "HTTP/1.1 206 Partial\r\netag: \"e{tag}\"\r\nlast-modified: {DATE}\r\n\
         content-range: bytes {from}-{to}/{length}\r\ncontent-length: {text}\r\n\r\n"
    )?;
    // One whose tag changes never gives all of it.
    let given = if tag.is_empty() {
        &body[from as usize..=to as usize]
    } else {
        ""
    };
    out.write_all(given.as_bytes())
}

fn redirect(out: &mut TcpStream, place: &str) -> io::Result<()> {
    write!(
        out,
        "HTTP/1.1 307 Look there\r\nlocation: {place}\r\ncontent-length: 0\r\n\r\n"
    )
}

fn chunk(out: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    out.write_all(&chunk)
}

/// Until the other side goes.
fn for_ever(mut each: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    loop {
        each()?;
    }
}

/// The next request, of which the body is read over; `None` where the other side has gone.
fn read_request(input: &mut BufReader<TcpStream>) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let (mut range, mut length) = (None, 0);
    loop {
        let mut header = String::new();
        input.read_line(&mut header)?;
        let header = header.trim_end().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length: ") {
            length = value.parse().unwrap_or(0);
        }
        if let Some(value) = header.strip_prefix("range: bytes=") {
            let ends = value.split_once('-');
            range = ends.and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
        }
    }
    io::copy(&mut io::Read::take(&mut *input, length), &mut io::sink())?;
    Ok(Some(Request { line, range }))
}

//! Answers scrapes: <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use super::figures::Figures;
use crate::block_on;
use crate::limits::{HEAD_BYTES, SCRAPE_TIME, SCRAPES};
use crate::stop::Stop;
use anyhow::Context;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use memtrace::cli::say;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

const PATH: &str = "/metrics";
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
const WORDS: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Answer Prometheus's scrapes
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where to listen
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = parse_listen)]
    listen: SocketAddr,

    /// A recording, or a directory of recordings
    dir: PathBuf,
}

/// A port of this machine, or an address with one.
fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let port = text.parse().map(|port| (Ipv4Addr::LOCALHOST, port).into());
    port.or_else(|_| text.parse()).map_err(|_| {
        "it is neither a port such as 9847, for this machine only, nor an address with one such as \
         0.0.0.0:9847 or [::]:9847"
            .to_owned()
    })
}

/// Answers until stopped.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    block_on(async {
        let mut stop = Stop::by_signals().context("failed to wait for signals")?;
        let figures = Figures::open(&args.dir).await?;
        let listener = TcpListener::bind(args.listen).await;
        let listener = listener.with_context(|| format!("failed to listen on {}", args.listen))?;
        let address = listener.local_addr()?;
        say(&format!(
            "answering at http://{address}{PATH}; Ctrl-C ends it"
        ));
        tokio::select! {
            () = accept(listener, figures) => {}
            () = stop.wished() => {}
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Answers so many at a time; others wait.
async fn accept(listener: TcpListener, figures: Figures) {
    let free = Arc::new(Semaphore::new(SCRAPES));
    loop {
        let Ok(place) = Arc::clone(&free).acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors: those that are open end at some time.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let figures = figures.clone();
        tokio::spawn(async move {
            // One that reads slowly or says nothing has the place for no longer than this.
            let _ = timeout(2 * SCRAPE_TIME, converse(stream, figures)).await;
            drop(place);
        });
    }
}

async fn converse(stream: TcpStream, figures: Figures) -> hyper::Result<()> {
    let service = service_fn(|request: Request<Incoming>| {
        let figures = figures.clone();
        async move { Ok::<_, Infallible>(answer(&request, &figures).await) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(SCRAPE_TIME)
        .max_buf_size(HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

async fn answer(request: &Request<Incoming>, figures: &Figures) -> Response<Full<Bytes>> {
    if request.uri().path() != PATH {
        let where_it_is = format!("the figures are at {PATH}\n");
        return with(StatusCode::NOT_FOUND, WORDS, where_it_is);
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let why = "figures can only be read\n".to_owned();
        let mut refused = with(StatusCode::METHOD_NOT_ALLOWED, WORDS, why);
        let allowed = HeaderValue::from_static("GET, HEAD");
        refused.headers_mut().insert(ALLOW, allowed);
        return refused;
    }
    let read = timeout(SCRAPE_TIME, figures.now()).await;
    let read = read.unwrap_or_else(|_| Err(anyhow::anyhow!("the recording can't be read in time")));
    match read {
        Ok(now) => {
            let text: String = now.families.iter().map(ToString::to_string).collect();
            with(StatusCode::OK, TEXT, text)
        }
        Err(error) => with(
            StatusCode::SERVICE_UNAVAILABLE,
            WORDS,
            format!("{error:#}\n"),
        ),
    }
}

fn with(status: StatusCode, content_type: HeaderValue, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_one_of_this_machine() {
        let listen = |text| parse_listen(text).map(|address| address.to_string());
        assert_eq!(listen("9847").as_deref(), Ok("127.0.0.1:9847"));
        assert_eq!(listen("0.0.0.0:1").as_deref(), Ok("0.0.0.0:1"));
        assert_eq!(listen("[::1]:1").as_deref(), Ok("[::1]:1"));
        for text in ["", "host", "localhost:1", "70000", "1.2.3.4", "-1"] {
            let refused = listen(text).expect_err(text);
            assert!(refused.contains("such as 9847"), "{refused}");
        }
    }
}

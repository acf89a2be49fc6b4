//! Connections that wait for their next request.

use super::connector::failure;
use crate::http::in_words;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::SendRequest;
use object_store::client::{HttpError, HttpErrorKind, HttpRequestBody};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::time::Sleep;

/// A server may close a connection that is idle for longer.
const IDLE: Duration = Duration::from_secs(4);
/// More are not under way at once.
const KEPT: usize = 8;
/// An answer that stops for so long does not go on.
const BODY_PATIENCE: Duration = Duration::from_secs(60);

/// Who is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) is_tls: bool,
    /// As the resolver takes it.
    pub(super) host: String,
    pub(super) port: u16,
    /// As the header `Host` has it.
    pub(super) authority: String,
}

/// The connections.
#[derive(Default)]
pub(super) struct Pool(Mutex<Vec<Idle>>);

struct Idle {
    server: Server,
    sender: SendRequest<HttpRequestBody>,
    since: Instant,
}

impl Pool {
    /// A connection to a server, if one waits.
    pub(super) fn take(&self, server: &Server) -> Option<SendRequest<HttpRequestBody>> {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|idle| idle.since.elapsed() < IDLE && !idle.sender.is_closed());
        let at = idle.iter().rposition(|idle| idle.server == *server)?;
        Some(idle.swap_remove(at).sender)
    }

    fn put(&self, server: Server, sender: SendRequest<HttpRequestBody>) {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < KEPT {
            idle.push(Idle {
                server,
                sender,
                since: Instant::now(),
            });
        }
    }
}

/// An answer; when all of it is read, its connection waits for the next request.
pub(super) struct Pooled {
    body: Incoming,
    connection: Option<(Server, SendRequest<HttpRequestBody>)>,
    pool: Arc<Pool>,
    patience: Option<Pin<Box<Sleep>>>,
}

impl Pooled {
    pub(super) fn new(
        body: Incoming,
        sender: SendRequest<HttpRequestBody>,
        server: Server,
        pool: Arc<Pool>,
    ) -> Self {
        Self {
            body,
            connection: Some((server, sender)),
            pool,
            patience: None,
        }
    }
}

impl Body for Pooled {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let this = self.get_mut();
        let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) else {
            let new = || Box::pin(tokio::time::sleep(BODY_PATIENCE));
            let patience = this.patience.get_or_insert_with(new);
            return match patience.as_mut().poll(context) {
                Poll::Ready(()) => {
                    let words = "the answer stopped within";
                    Poll::Ready(Some(Err(failure(HttpErrorKind::Timeout, words))))
                }
                Poll::Pending => Poll::Pending,
            };
        };
        this.patience = None;
        if frame.is_none()
            && let Some((server, sender)) = this.connection.take()
        {
            this.pool.put(server, sender);
        }
        let broken = |error: hyper::Error| failure(HttpErrorKind::Interrupted, &in_words(&error));
        Poll::Ready(frame.map(|frame| frame.map_err(broken)))
    }

    fn is_end_stream(&self) -> bool {
        // Asked for its end, it gives its connection back.
        false
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

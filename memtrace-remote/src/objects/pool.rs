//! Connections that wait for their next request.

use super::contact::Contact;
use super::failure::{failure, too_long};
use crate::http::in_words;
use crate::limits::{SILENCE_TIME, SLOW_LINE_BYTES_PER_S};
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::SendRequest;
use indicatif::BinaryBytes;
use object_store::client::{HttpError, HttpErrorKind, HttpRequestBody};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::time::{Instant as Then, Sleep};

/// A server may close a connection that is idle for longer.
const IDLE: Duration = Duration::from_secs(4);
/// More are not under way at once.
const KEPT: usize = 8;

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

impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority)
    }
}

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

/// An answer, which has its bounds; when all of it is read, its connection waits for the next request.
pub(super) struct Pooled {
    body: Incoming,
    server: Server,
    sender: Option<SendRequest<HttpRequestBody>>,
    pool: Arc<Pool>,
    /// Who is reported when all of it has come, where it is no refusal.
    contact: Option<Arc<Contact>>,
    left: u64,
    most: u64,
    begun: Then,
    heard: Then,
    patience: Option<Pin<Box<Sleep>>>,
}

impl Pooled {
    pub(super) fn new(
        body: Incoming,
        (sender, server): (SendRequest<HttpRequestBody>, Server),
        pool: Arc<Pool>,
        most: u64,
        contact: Option<Arc<Contact>>,
    ) -> Self {
        let now = Then::now();
        Self {
            body,
            server,
            sender: Some(sender),
            pool,
            contact,
            left: most,
            most,
            begun: now,
            heard: now,
            patience: None,
        }
    }

    /// When it is waited for no longer: it stopped, or came more slowly than over a slow line.
    fn deadline(&self) -> Then {
        let came = (self.most - self.left) / SLOW_LINE_BYTES_PER_S;
        let slowly = self.begun + Duration::from_secs(came);
        self.heard.min(slowly) + SILENCE_TIME
    }

    fn late(&self) -> HttpError {
        let words = format!(
            "the answer of {} stopped, or comes more slowly than {} a second",
            self.server,
            BinaryBytes(SLOW_LINE_BYTES_PER_S)
        );
        failure(HttpErrorKind::Timeout, &words)
    }

    /// What is given of what has come; nothing of a refusal that is long enough.
    fn take(&mut self, frame: Frame<Bytes>) -> Option<Result<Frame<Bytes>, HttpError>> {
        let length = frame.data_ref().map_or(0, Bytes::len) as u64;
        match self.left.checked_sub(length) {
            Some(left) => {
                self.left = left;
                Some(Ok(frame))
            }
            None if self.contact.is_none() => None,
            None => Some(Err(too_long(&self.server, self.most))),
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
            let deadline = this.deadline();
            let new = || Box::pin(tokio::time::sleep_until(deadline));
            let patience = this.patience.get_or_insert_with(new);
            return match patience.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(Some(Err(this.late()))),
                Poll::Pending => Poll::Pending,
            };
        };
        this.patience = None;
        this.heard = Then::now();
        Poll::Ready(match frame {
            Some(Ok(frame)) => this.take(frame),
            Some(Err(error)) => {
                let words = format!("{}: {}", this.server, in_words(&error));
                Some(Err(failure(HttpErrorKind::Interrupted, &words)))
            }
            None => {
                if let Some(sender) = this.sender.take() {
                    this.pool.put(this.server.clone(), sender);
                }
                if let Some(contact) = &this.contact {
                    contact.heard();
                }
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        // Asked for its end, it gives its connection back.
        false
    }

    fn size_hint(&self) -> SizeHint {
        // Room is made for as much as a server says.
        match self.body.size_hint().lower() <= self.left {
            true => self.body.size_hint(),
            false => SizeHint::default(),
        }
    }
}
